// The keyboard in the graph: right and left along edges, up and down between nodes of one column.
import type { TargetedKeyboardEvent } from "preact";
import type { Layout, Placed } from "./layout";
import { selected } from "./selected";

export function step(event: TargetedKeyboardEvent<HTMLElement>, layout: Layout): void {
  if (event.key === "Escape") selected.value = null;
  const here = (document.activeElement as HTMLElement | null)?.dataset.node;
  const node = layout.nodes.find((one) => one.id === here);
  const next = node && neighbour(event.key, node, layout);
  if (!next) return;
  event.preventDefault();
  const buttons = event.currentTarget.querySelectorAll<HTMLElement>("[data-node]");
  [...buttons].find((button) => button.dataset.node === next.id)?.focus();
}

function neighbour(key: string, node: Placed, layout: Layout): Placed | undefined {
  const find = (ids: string[]): Placed | undefined =>
    layout.nodes
      .filter((one) => ids.includes(one.id))
      .sort((a, b) => Math.abs(a.y - node.y) - Math.abs(b.y - node.y))[0];
  if (key === "ArrowRight") return find(layout.runs.filter((run) => run.from === node.id).map((run) => run.to));
  if (key === "ArrowLeft") return find(layout.runs.filter((run) => run.to === node.id).map((run) => run.from));
  const column = layout.nodes.filter((one) => Math.abs(one.x - node.x) < 60);
  if (key === "ArrowDown") return column.filter((one) => one.y > node.y).sort((a, b) => a.y - b.y)[0];
  if (key === "ArrowUp") return column.filter((one) => one.y < node.y).sort((a, b) => b.y - a.y)[0];
  return undefined;
}
