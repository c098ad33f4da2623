// Which page is shown: the part of the address after #.
import { signal } from "@preact/signals";

export interface Route {
  page: string;
  name: string | null;
}

export const route = signal<Route>(parse(location.hash));

function parse(hash: string): Route {
  const [page = "", name] = hash.replace(/^#\/?/, "").split("/");
  try {
    return { page: page || "overview", name: name ? decodeURIComponent(name) : null };
  } catch {
    return { page: page || "overview", name: null };
  }
}

export function href(page: string, name?: string | null): string {
  return `#/${page === "overview" ? "" : page}${name ? `/${encodeURIComponent(name)}` : ""}`;
}

export function go(page: string, name?: string | null): void {
  location.hash = href(page, name);
}

export function followAddress(): void {
  // A token in the address has done its work once the page is loaded, and should not be shown or kept in the history.
  const address = new URL(location.href);
  if (address.searchParams.has("token")) {
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  addEventListener("hashchange", () => {
    route.value = parse(location.hash);
    document.querySelector("main")?.scrollTo(0, 0);
  });
}
