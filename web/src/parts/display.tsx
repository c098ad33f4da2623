// The menu for how things look: theme, contrast and time zone.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { CONTRASTS, contrast, THEMES, theme, zone, zoneName } from "../choices";
import { Choose } from "./choose";
import { Icon } from "./icon";

const ZONES = ["local", "UTC", ...Intl.supportedValuesOf("timeZone")];

export function Display(): JSX.Element {
  const open = useSignal(false);
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const outside = (event: PointerEvent): void => {
      if (!menu.current?.contains(event.target as Node)) open.value = false;
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  return (
    <div
      class="display"
      ref={menu}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        open.value = false;
        menu.current?.querySelector("button")?.focus();
      }}
    >
      <button
        type="button"
        class="quiet"
        aria-expanded={open.value}
        aria-label="Display: theme, contrast, time zone"
        title="Theme, contrast, time zone"
        onClick={() => {
          open.value = !open.value;
        }}
      >
        <Icon name="display" />
      </button>
      {open.value && (
        <div class="menu" role="group" aria-label="Display">
          <span>Theme</span>
          <Choose
            label="Theme"
            choices={THEMES}
            value={theme.value}
            onChoose={(one) => {
              theme.value = one;
            }}
          />
          <span>Contrast</span>
          <Choose
            label="Contrast"
            choices={CONTRASTS}
            value={contrast.value}
            onChoose={(one) => {
              contrast.value = one;
            }}
          />
          <label for="zone">Times in</label>
          <select
            id="zone"
            value={zone.value}
            onChange={(event) => {
              zone.value = event.currentTarget.value;
            }}
          >
            {ZONES.map((name) => (
              <option key={name} value={name}>
                {name === "local" ? `this browser's zone (${zoneName.peek()})` : name}
              </option>
            ))}
          </select>
        </div>
      )}
    </div>
  );
}
