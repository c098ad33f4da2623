// Where a query, or the run, is between its start and its end: a dot and a word.
import type { JSX } from "preact";
import type { Phase } from "../wire/types";

export function Badge({ phase, quiet = false }: { phase: Phase; quiet?: boolean }): JSX.Element {
  return (
    <span class={`badge ${phase}`} title={phase}>
      <i />
      <span class={quiet ? "unseen" : ""}>{phase}</span>
    </span>
  );
}
