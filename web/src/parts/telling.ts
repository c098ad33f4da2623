// Events that must not be missed come up as toasts: what failed, and a clock that was set.
import { duration } from "../format";
import { ring } from "../wire/channels";
import { jumped } from "../wire/clock";
import { toast } from "./toasts";

export function tellEvents(): () => void {
  const events = ring("events");
  let seen = -1;
  const ends = [
    events.changed.subscribe(() => {
      const from = seen < 0 ? events.length : Math.max(0, events.length - (events.version - seen));
      seen = events.version;
      const levels = events.column("level");
      for (let at = from; at < events.length; at += 1)
        if (levels[at] === "error" || levels[at] === "warning")
          toast(String(events.column("text")[at]).slice(0, 300), levels[at] === "error" ? "bad" : "warn");
    }),
    jumped.subscribe((by) => {
      if (by) toast(`the server's clock was set ${by > 0 ? "forward" : "back"} by ${duration(Math.abs(by))}`, "warn");
    }),
  ];
  return () => {
    for (const end of ends) end();
  };
}
