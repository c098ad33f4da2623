// The node whose drawer is open.
import { signal } from "@preact/signals";

export const selected = signal<string | null>(null);
