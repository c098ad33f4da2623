// Everything that the palette can go to or do.
import { pipeline } from "../api";
import { contrast, dark, highContrast, theme, zone } from "../choices";
import { selected } from "../graph/selected";
import { go } from "../route";
import { slot } from "../wire/channels";
import { paused } from "../wire/pause";
import { pause } from "../wire/socket";
import type { State, Topic } from "../wire/types";
import type { IconName } from "./icon";

export interface Destination {
  name: string;
  kind: string;
  icon: IconName;
  act: () => void;
}

export const PAGES: { page: string; title: string; icon: IconName }[] = [
  { page: "overview", title: "Overview", icon: "overview" },
  { page: "results", title: "Results", icon: "results" },
  { page: "topics", title: "Topics", icon: "topics" },
  { page: "dead", title: "Dead letters", icon: "dead" },
  { page: "about", title: "About", icon: "about" },
];

export function destinations(): Destination[] {
  const known = pipeline.value;
  const state = slot("state").value.value as State | null;
  const topics = (slot("topics").value.value as Topic[] | null)?.map((one) => one.name) ?? known?.topics ?? [];
  const nodes = [...(known?.sources ?? []), ...(known?.tables ?? [])];
  return [
    ...PAGES.map(({ page, title, icon }) => ({ name: title, kind: "page", icon, act: () => go(page) })),
    ...(state?.queries ?? []).map(({ name }) => to(name, "query", "query")),
    ...nodes.map(({ name }) => node(name)),
    ...topics.map((name) => to(name, "topics", "topics")),
    ...(known?.panels ?? []).map(({ id, title }) => ({ ...to(title || id, "results", "results", id), kind: "panel" })),
    ...actions(),
  ];
}

function to(name: string, page: string, icon: IconName, part = name): Destination {
  return { name, kind: page === "topics" ? "topic" : page, icon, act: () => go(page, part) };
}

function node(name: string): Destination {
  const act = (): void => {
    go("overview");
    selected.value = name;
  };
  const source = pipeline.peek()?.sources.some((one) => one.name === name) ?? false;
  return { name, kind: source ? "source" : "table", icon: source ? "source" : "table", act };
}

function actions(): Destination[] {
  const make = (name: string, icon: IconName, act: () => void): Destination => ({ name, kind: "do", icon, act });
  return [
    make(paused.value ? "Go on" : "Pause the page", paused.value ? "play" : "pause", () => pause(!paused.peek())),
    make(dark.value ? "Light theme" : "Dark theme", "display", () => {
      theme.value = dark.peek() ? "light" : "dark";
    }),
    make(highContrast.value ? "Normal contrast" : "High contrast", "display", () => {
      contrast.value = highContrast.peek() ? "normal" : "high";
    }),
    make(zone.value === "UTC" ? "Times in this browser's zone" : "Times in UTC", "display", () => {
      zone.value = zone.peek() === "UTC" ? "local" : "UTC";
    }),
  ];
}
