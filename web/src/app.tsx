// The frame around every page: navigation, the state of the connection, pause, keys.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { pipeline } from "./api";
import { About } from "./pages/about";
import { Dead } from "./pages/dead";
import { Overview } from "./pages/overview";
import { Query } from "./pages/query";
import { Results } from "./pages/results";
import { Topics } from "./pages/topics";
import { RowDrawer } from "./panels/rowdrawer";
import { Banner } from "./parts/banner";
import { Header } from "./parts/header";
import { listenToKeys } from "./parts/keys";
import { Nav } from "./parts/nav";
import { Palette } from "./parts/palette";
import { tellEvents } from "./parts/telling";
import { Toasts } from "./parts/toasts";
import { href, route } from "./route";
import { useChannels } from "./wire/wanted";

const PAGES: Record<string, (props: { name: string | null }) => JSX.Element> = {
  overview: Overview,
  query: Query,
  results: Results,
  topics: Topics,
  dead: Dead,
  about: About,
};

export function App(): JSX.Element {
  useChannels("state", "events", "panels");
  useEffect(listenToKeys, []);
  useEffect(tellEvents, []);
  const { page, name } = route.value;
  const Page = PAGES[page];
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        To the content
      </button>
      <Header />
      <Nav />
      <main id="main" tabIndex={-1} aria-label={`${page}${name ? ` ${name}` : ""}`}>
        <Banner />
        {Page ? <Page key={page} name={name} /> : <Nowhere page={page} />}
      </main>
      <Palette />
      <RowDrawer />
      <Toasts />
    </div>
  );
}

function Nowhere({ page }: { page: string }): JSX.Element {
  return (
    <p class="empty">
      There is no page called “{page}” of {pipeline.value?.name ?? "this pipeline"}.{" "}
      <a href={href("overview")}>Overview</a>
    </p>
  );
}
