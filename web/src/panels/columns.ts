// Which column of a panel's rows means what; a column that vanished is said, not guessed.
import type { Failure, Panel, PanelData } from "../wire/types";

/** The place of the column that a panel calls `role`: by that name, or by the name that the author gave. */
export function columnFor(panel: Panel, data: PanelData, role: string): number {
  const byRole = data.columns.indexOf(role);
  if (byRole >= 0) return byRole;
  const named = panel.options[role];
  return typeof named === "string" ? data.columns.indexOf(named) : -1;
}

export function vanished(panel: Panel, data: PanelData, roles: string[]): Failure | null {
  const gone = roles.filter((role) => columnFor(panel, data, role) < 0);
  if (!gone.length) return null;
  const names = gone.map((role) => (typeof panel.options[role] === "string" ? String(panel.options[role]) : role));
  return {
    message: `N/A, because the table has no column ${names.join(", ")}`,
    why: `it has ${data.columns.join(", ") || "no columns"}`,
    hint: `the rows are shown as they are; mend the panel of ${panel.table} in the pipeline's file`,
    where: null,
  };
}
