// One node of the graph: what it is, how busy it is, and what needs a look.
import type { JSX } from "preact";
import { percent, short } from "../format";
import { Icon } from "../parts/icon";
import { visible } from "../text";
import type { State } from "../wire/types";
import { HIGH, type Placed, WIDE } from "./layout";
import { brokenBy, busyOf, level } from "./model";
import { selected } from "./selected";

export function NodeCard({ node, state }: { node: Placed; state: State | null }): JSX.Element {
  const busy = busyOf(node, state);
  const broken = brokenBy(node, state);
  const dead = node.kind === "source" ? (state?.dead[node.name] ?? 0) : 0;
  const told = broken ?? (busy === null ? "" : `${percent(busy)} busy`);
  return (
    <button
      type="button"
      class={`node ${node.kind} ${level(node, state)}`}
      data-node={node.id}
      aria-pressed={selected.value === node.id}
      aria-label={`${node.kind} ${node.name}${told ? `, ${told}` : ""}${dead ? `, ${dead} dead letters` : ""}`}
      style={{ width: `${WIDE}px`, height: `${HIGH}px`, left: `${node.x - WIDE / 2}px`, top: `${node.y - HIGH / 2}px` }}
      onClick={() => {
        selected.value = selected.peek() === node.id ? null : node.id;
      }}
    >
      <Icon name={node.kind} />
      <span class="title">{visible(node.name)}</span>
      <span class="sub">{visible(node.detail)}</span>
      <span class="told">{broken ?? (busy === null ? "" : percent(busy))}</span>
      {dead > 0 && <span class="flag">{short(dead)} dead</span>}
      <i class="meter" style={{ transform: `scaleX(${broken ? 1 : (busy ?? 0)})` }} />
    </button>
  );
}
