// The top line: which pipeline, how it is, how fresh what is shown is, and pause.
import type { JSX } from "preact";
import { pipeline } from "../api";
import { href } from "../route";
import { visible } from "../text";
import { slot } from "../wire/channels";
import { paused } from "../wire/pause";
import { pause } from "../wire/socket";
import type { State } from "../wire/types";
import { Badge } from "./badge";
import { Display } from "./display";
import { Freshness } from "./freshness";
import { Icon } from "./icon";
import { paletteOpen } from "./palette";
import { Wheel } from "./wheel";

export function Header(): JSX.Element {
  const state = slot("state").value.value as State | null;
  return (
    <header class="topline">
      <a class="brand" href="#/" aria-label="Millrace, overview">
        <Wheel />
        <span>Millrace</span>
      </a>
      <h1>{visible(pipeline.value?.name ?? "…")}</h1>
      <Generation number={pipeline.value?.generation ?? null} />
      {state && <Badge phase={state.phase} />}
      <span class="gap" />
      <Freshness />
      <button
        type="button"
        class="quiet jump"
        onClick={() => {
          paletteOpen.value = true;
        }}
      >
        <Icon name="search" />
        <span>Go to</span>
        <kbd>Ctrl K</kbd>
      </button>
      <button type="button" class={`quiet ${paused.value ? "on" : ""}`} aria-pressed={paused.value} onClick={toggle}>
        <Icon name={paused.value ? "play" : "pause"} />
        <span>{paused.value ? "Go on" : "Pause"}</span>
      </button>
      <Display />
    </header>
  );
}

/** Which one the run writes; of the first there is nothing to say. */
function Generation({ number }: { number: number | null }): JSX.Element | null {
  if (number === null || number === 1) return null;
  return (
    <a class="tag" href={href("about")}>
      generation {number}
    </a>
  );
}

function toggle(): void {
  pause(!paused.peek());
}
