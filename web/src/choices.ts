// What the reader chose: theme, contrast, time zone, span of charts; kept by the browser, following the system by default.
import { computed, effect, type Signal, signal } from "@preact/signals";

function choice<T extends string>(name: string, first: T, allowed?: readonly T[]): Signal<T> {
  const key = `millrace.${name}`;
  const stored = read(key) as T | null;
  const made = signal<T>(stored !== null && (!allowed || allowed.includes(stored)) ? stored : first);
  made.subscribe((value) => write(key, value));
  return made;
}

/** Storage can be forbidden; then choices last as long as the page. */
function read(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Forbidden: nothing to do.
  }
}

function media(query: string): Signal<boolean> {
  const found = matchMedia(query);
  const made = signal(found.matches);
  found.addEventListener("change", () => {
    made.value = found.matches;
  });
  return made;
}

const systemDark = media("(prefers-color-scheme: dark)");
const systemContrast = media("(prefers-contrast: more)");
export const calm = media("(prefers-reduced-motion: reduce)");

export const THEMES = ["system", "light", "dark"] as const;
export const CONTRASTS = ["system", "normal", "high"] as const;
export const SPANS = ["1m", "3m", "10m", "30m"] as const;

export const theme = choice<(typeof THEMES)[number]>("theme", "system", THEMES);
export const contrast = choice<(typeof CONTRASTS)[number]>("contrast", "system", CONTRASTS);
/** "local", or a name of a time zone. */
export const zone = choice<string>("zone", "local");
export const span = choice<(typeof SPANS)[number]>("span", "3m", SPANS);

export const spanMs = computed(() => Number.parseInt(span.value, 10) * 60_000);
export const dark = computed(() => (theme.value === "system" ? systemDark.value : theme.value === "dark"));
export const highContrast = computed(() =>
  contrast.value === "system" ? systemContrast.value : contrast.value === "high",
);
/** Changes whenever colours do; drawings on canvas read it. */
export const look = computed(() => `${dark.value ? "dark" : "light"} ${highContrast.value ? "high" : "normal"}`);
export const zoneName = computed(() =>
  zone.value === "local" ? Intl.DateTimeFormat().resolvedOptions().timeZone : zone.value,
);

export function followChoices(): void {
  effect(() => {
    const { dataset } = document.documentElement;
    dataset.theme = dark.value ? "dark" : "light";
    dataset.contrast = highContrast.value ? "high" : "normal";
  });
}
