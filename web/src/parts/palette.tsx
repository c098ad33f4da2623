// Ctrl-K: type a few letters, jump to a page, a query, a topic, a panel, or do something.
import { signal, useSignal } from "@preact/signals";
import type { JSX, TargetedKeyboardEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { visible } from "../text";
import { type Destination, destinations } from "./destinations";
import { Icon } from "./icon";

export const paletteOpen = signal(false);

const MOST = 12;

export function Palette(): JSX.Element | null {
  return paletteOpen.value ? <Opened /> : null;
}

function Opened(): JSX.Element {
  const typed = useSignal("");
  const at = useSignal(0);
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the next key is pressed, not after the next frame.
  useLayoutEffect(() => {
    dialog.current?.showModal();
  }, []);
  const found = best(typed.value, destinations());
  const take = (one: Destination | undefined): void => {
    paletteOpen.value = false;
    one?.act();
  };
  const keys = (event: TargetedKeyboardEvent<HTMLInputElement>): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      at.value = (at.value + step + found.length) % Math.max(1, found.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(found[at.value]);
    }
  };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes a dialog by itself
    <dialog
      class="palette"
      ref={dialog}
      aria-label="Go to"
      onClose={() => {
        paletteOpen.value = false;
      }}
      onClick={(event) => event.target === dialog.current && dialog.current?.close()}
    >
      <label class="filter">
        <Icon name="search" />
        <span class="unseen">Go to a page, a query, a topic, a panel</span>
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-found"
          aria-activedescendant={found.length ? `palette-${at.value}` : undefined}
          placeholder="go to a page, a query, a topic, a panel …"
          value={typed.value}
          onInput={(event) => {
            typed.value = event.currentTarget.value;
            at.value = 0;
          }}
          onKeyDown={keys}
        />
        <kbd>Esc</kbd>
      </label>
      <div id="palette-found" role="listbox" aria-label="Found">
        {found.map((one, place) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the box above has the keys
          // biome-ignore lint/a11y/useFocusableInteractive: the box above keeps the focus
          <div
            key={`${one.kind} ${one.name}`}
            id={`palette-${place}`}
            role="option"
            aria-selected={place === at.value}
            class={place === at.value ? "on" : ""}
            onPointerMove={() => {
              at.value = place;
            }}
            onClick={() => take(one)}
          >
            <Icon name={one.icon} />
            <span>{visible(one.name)}</span>
            <small>{one.kind}</small>
          </div>
        ))}
        {!found.length && <p class="empty">nothing is called that</p>}
      </div>
    </dialog>
  );
}

/** Those whose name has the letters in their order, the closest first. */
function best(typed: string, all: Destination[]): Destination[] {
  const wanted = typed.toLowerCase().replaceAll(" ", "");
  if (!wanted) return all.slice(0, MOST);
  return all
    .map((one) => ({ one, score: distance(wanted, `${one.name} ${one.kind}`.toLowerCase()) }))
    .filter(({ score }) => score < Number.POSITIVE_INFINITY)
    .sort((a, b) => a.score - b.score)
    .slice(0, MOST)
    .map(({ one }) => one);
}

function distance(wanted: string, name: string): number {
  if (name.includes(wanted)) return name.indexOf(wanted);
  let from = 0;
  let gaps = 100;
  for (const letter of wanted) {
    const found = name.indexOf(letter, from);
    if (found < 0) return Number.POSITIVE_INFINITY;
    gaps += found - from;
    from = found + 1;
  }
  return gaps;
}
