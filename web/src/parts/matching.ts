// What a filter finds: every word of it somewhere in the row; -word must not be there.

type Value = string | number | boolean | null;

export function matches(filter: string, values: readonly Value[]): boolean {
  const text = values
    .map((value) => (value === null ? "" : String(value)))
    .join("\u0001")
    .toLowerCase();
  return words(filter).every((word) =>
    word.length > 1 && word.startsWith("-") ? !text.includes(word.slice(1)) : text.includes(word),
  );
}

function words(filter: string): string[] {
  return filter.toLowerCase().split(/\s+/).filter(Boolean);
}
