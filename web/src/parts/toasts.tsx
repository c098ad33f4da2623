// Short words at the corner that go by themselves, except what is wrong.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { Icon } from "./icon";

interface Toast {
  id: number;
  text: string;
  tone: "fine" | "warn" | "bad";
}

const MOST = 4;
const STAYS = 4_500;
const toasts = signal<Toast[]>([]);
let next = 0;

export function toast(text: string, tone: Toast["tone"] = "fine"): void {
  const id = next++;
  toasts.value = [...toasts.peek(), { id, text, tone }].slice(-MOST);
  if (tone !== "bad") setTimeout(() => dismiss(id), STAYS);
}

function dismiss(id: number): void {
  toasts.value = toasts.peek().filter((one) => one.id !== id);
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.tone}`}>
          <span>{one.text}</span>
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(one.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
