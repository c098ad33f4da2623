// Plain requests to the server: the pipeline, dead letters, records, SQL.
import { signal } from "@preact/signals";
import type { Cell, Pipeline } from "./wire/types";

export class Refused extends Error {
  constructor(
    message: string,
    readonly hint: string | null,
  ) {
    super(message);
  }
}

/** A program that is not ours tells little about itself. */
const NOTHING: Pipeline = {
  name: "…",
  file: null,
  version: "",
  generation: null,
  generations: [],
  sources: [],
  tables: [],
  sinks: [],
  queries: [],
  panels: [],
  memory: [],
  topics: [],
  settings: [],
  versions: {},
  actions: false,
};

export const pipeline = signal<Pipeline | null>(null);
export const pipelineTrouble = signal<string | null>(null);

export function address(path: string, query: Record<string, string | number | null> = {}): string {
  const made = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) if (value !== null) made.searchParams.set(name, String(value));
  return made.href;
}

export async function ask<T>(where: string, options?: RequestInit): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(where, options);
  } catch {
    throw new Refused("the server does not answer", "it may have ended; the page goes on trying to reach it");
  }
  const told = (await answer.json().catch(() => null)) as { error?: string; hint?: string | null } | null;
  if (!answer.ok || told?.error)
    throw new Refused(told?.error ?? `the server answered ${answer.status}`, told?.hint ?? null);
  return told as T;
}

export async function loadPipeline(): Promise<void> {
  try {
    pipeline.value = { ...NOTHING, ...(await ask<Partial<Pipeline>>(address("pipeline"))) };
    pipelineTrouble.value = null;
    document.title = `${pipeline.value.name} · Millrace`;
  } catch (error) {
    pipelineTrouble.value = (error as Error).message;
  }
}

export function runSql(sql: string, rows: number): Promise<{ columns: string[]; rows: Cell[][]; more?: boolean }> {
  return ask(address("sql"), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ sql, rows }),
  });
}
