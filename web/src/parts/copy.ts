// Texts into the clipboard and into files.
import { toast } from "./toasts";

export async function copyText(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`copied ${what}`);
  } catch {
    toast(`the browser does not let this page copy; ${what} can be exported`, "warn");
  }
}

export function saveText(text: string, name: string, type = "application/x-ndjson"): void {
  const place = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = place;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(place), 1_000);
}
