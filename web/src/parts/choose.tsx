// A few choices beside each other, one of them taken.
import type { JSX } from "preact";

export function Choose<T extends string>({
  label,
  choices,
  value,
  onChoose,
  show = (one) => one,
}: {
  label: string;
  choices: readonly T[];
  value: T;
  onChoose: (value: T) => void;
  show?: (value: T) => string;
}): JSX.Element {
  return (
    <div class="choose" role="radiogroup" aria-label={label}>
      {choices.map((one) => (
        <button
          type="button"
          role="radio"
          key={one}
          aria-checked={one === value}
          onClick={() => onChoose(one)}
          class={one === value ? "on" : ""}
        >
          {show(one)}
        </button>
      ))}
    </div>
  );
}
