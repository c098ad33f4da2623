// The way to every page, with what needs a look beside it.
import type { JSX } from "preact";
import { short } from "../format";
import { href, route } from "../route";
import { visible } from "../text";
import { slot } from "../wire/channels";
import type { State } from "../wire/types";
import { Badge } from "./badge";
import { PAGES } from "./destinations";
import { Icon } from "./icon";

export function Nav(): JSX.Element {
  const state = slot("state").value.value as State | null;
  const { page, name } = route.value;
  const queries = state?.queries ?? [];
  return (
    <nav aria-label="Pages">
      <ul>
        {PAGES.map((one) => (
          <li key={one.page}>
            <a href={href(one.page)} aria-current={page === one.page ? "page" : undefined}>
              <Icon name={one.icon} />
              <span>{one.title}</span>
              {one.page === "dead" && (state?.figures.dead ?? 0) > 0 && (
                <b class="count num">{short(state!.figures.dead!)}</b>
              )}
            </a>
          </li>
        ))}
      </ul>
      {queries.length > 0 && (
        <>
          <h2>Queries</h2>
          <ul>
            {queries.map((query) => (
              <li key={query.name}>
                <a
                  href={href("query", query.name)}
                  aria-current={page === "query" && name === query.name ? "page" : undefined}
                >
                  <Badge phase={query.phase} quiet />
                  <span>{visible(query.name)}</span>
                </a>
              </li>
            ))}
          </ul>
        </>
      )}
    </nav>
  );
}
