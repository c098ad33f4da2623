// One latest value of a channel.
import { signal } from "@preact/signals";

export class Slot {
  version = -1;
  private latest: unknown = null;
  readonly value = signal<unknown>(null);

  replace(data: unknown, version: number): void {
    this.latest = data;
    this.version = version;
  }

  notify(): void {
    this.value.value = this.latest;
  }
}
