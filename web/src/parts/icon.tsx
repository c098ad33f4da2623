// The page's own icons, drawn as lines of one weight.
import type { JSX } from "preact";

const PATHS = {
  overview: "M4 7h5a3 3 0 0 1 3 3v4a3 3 0 0 0 3 3h5M4 17h5a3 3 0 0 0 2.6-1.5M20 7h-5a3 3 0 0 0-2.6 1.5",
  query: "M4 18V6M4 18h16M7 14l4-5 3 3 5-6",
  results: "M5 19v-6M10 19V5M15 19v-9M20 19v-4",
  topics: "M4 6h16M4 12h16M4 18h16M8 4v4M14 10v4M10 16v4",
  dead: "M6 20V9a6 6 0 0 1 12 0v11M4 20h16M12 8v6M9.5 10.5h5",
  about: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 7.6v.1",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16.2 16.2L21 21",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  close: "M6 6l12 12M18 6L6 18",
  display: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  fit: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  source: "M4 12c2.5-5 5.5-5 8 0s5.5 5 8 0",
  table: "M4 5h16v14H4zM4 10h16M10 10v9",
  sink: "M12 4v10M8 10.5l4 4 4-4M4 17v3h16v-3",
  warn: "M12 4l9 16H3zM12 10v4M12 17v.1",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
