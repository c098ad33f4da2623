// Text from records made safe to look at: control characters become visible, and long text is cut.
import { bytes } from "./format";
import type { Cell, Sink } from "./wire/types";

/** Characters of a value that a cell of a table holds; a click shows more. */
export const CELL = 300;

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// These turn the direction of everything after them, or cannot be seen at all.
const INVISIBLE = /[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text: string): string {
  return text
    .replace(CONTROL, (found) => {
      const code = found.charCodeAt(0);
      return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "␡" : named(code);
    })
    .replace(INVISIBLE, (found) => named(found.charCodeAt(0)));
}

function named(code: number): string {
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Any value as one line of text; null is told apart from the text "null" by whoever shows it. */
export function plain(value: Cell): string {
  if (value === null) return "";
  return typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function cut(text: string, most = CELL): string {
  if (text.length <= most) return visible(text);
  return `${visible(text.slice(0, most))}… (${bytes(text.length)})`;
}

/** What a sink writes to, in a few words. */
export function destination(sink: Sink): string {
  return visible(sink.detail ? `${sink.connector} ${sink.detail}` : (sink.to ?? sink.connector));
}

/** JSON with indentation where the text is JSON; the text as it is otherwise. */
export function pretty(text: string): string {
  const first = text.trimStart()[0];
  if (first !== "{" && first !== "[") return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export function hexLines(data: Uint8Array, most = 4_096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(data.length, most); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const sides = `${hex.slice(0, 8).join(" ").padEnd(23)}  ${hex.slice(8).join(" ").padEnd(23)}`;
    const letters = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${sides}  ${letters}`);
  }
  if (data.length > most) lines.push(`… ${bytes(data.length - most)} more`);
  return lines.join("\n");
}

export function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return new TextEncoder().encode(text); // no base64: shown as it is
  }
}
