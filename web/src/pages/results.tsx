// What the pipeline finds: the panels that its author declared, and SQL over its tables in memory.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { pipeline } from "../api";
import { PanelCard } from "../panels/card";
import { slot } from "../wire/channels";
import type { Panel } from "../wire/types";
import { SqlBox } from "./sql";

export function Results({ name }: { name: string | null }): JSX.Element {
  const known = pipeline.value;
  const panels = (slot("panels").value.value as Panel[] | null) ?? known?.panels ?? [];
  useEffect(() => {
    if (name) document.getElementById(`panel-${name}`)?.scrollIntoView({ block: "center" });
  }, [name]);
  return (
    <div class="results">
      {known && !panels.length && (
        <p class="empty">
          No table of this pipeline is shown here. A line like <code>panels: [&#123;from: table, top: …&#125;]</code> in
          its file shows one.
        </p>
      )}
      {/* Numbers are small: they stand beside each other, before what needs room. */}
      <div class="panels numbers">{cards(panels.filter((panel) => panel.kind === "number"))}</div>
      <div class="panels">{cards(panels.filter((panel) => panel.kind !== "number"))}</div>
      {known && known.memory.length > 0 && <SqlBox tables={known.memory} allowed={known.actions} />}
    </div>
  );
}

function cards(panels: Panel[]): JSX.Element[] {
  return panels.map((panel) => <PanelCard key={panel.id} panel={panel} />);
}
