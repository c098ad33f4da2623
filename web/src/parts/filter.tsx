// The box in which a filter is typed; "/" goes to the first one on the page.
import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { Icon } from "./icon";

export function Filter({ label, value }: { label: string; value: Signal<string> }): JSX.Element {
  return (
    <label class="filter">
      <Icon name="search" />
      <span class="unseen">{label}</span>
      <input
        type="search"
        placeholder="filter"
        title="words that must be there; -word must not"
        value={value.value}
        onInput={(event) => {
          value.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          value.value = "";
          event.currentTarget.blur();
        }}
      />
    </label>
  );
}
