// Where the page begins.
import { render } from "preact";
import { loadPipeline } from "./api";
import { App } from "./app";
import { followChoices } from "./choices";
import { beginLoop } from "./draw/loop";
import { followAddress } from "./route";
import { connect, connections } from "./wire/socket";
import { rememberTrends } from "./wire/trends";
import "uplot/dist/uPlot.min.css";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/table.css";
import "./styles/graph.css";
import "./styles/charts.css";
import "./styles/pages.css";

followChoices();
followAddress();
rememberTrends();
render(<App />, document.getElementById("app")!);
beginLoop();
connect();
// After a restart the pipeline may be another one.
connections.subscribe((made) => made && void loadPipeline());
