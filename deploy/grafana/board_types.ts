// What Grafana's own types say a board is. tests/deploy/test_board_types.py appends a board to this, and tsc checks it.
import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel, VariableModel } from "@grafana/schema";
import type {
  FieldConfig as Cells,
  Options as Heatmap,
} from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type {
  FieldConfig as Lines,
  Options as TimeSeries,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON has the values of enums, not their names.
type Json<T> = T extends string ? `${T}`
  : T extends number | boolean | null | undefined ? T
  : T extends (infer Item)[] ? Json<Item>[]
  : T extends object ? { [Key in keyof T]: Json<T[Key]> }
  : T;

// Grafana leaves queries open, because each kind of source has its own: these are Prometheus'.
interface Query extends DataQuery {
  expr: string;
  legendFormat?: string;
  exemplar?: boolean;
  format?: "time_series" | "table" | "heatmap";
}
type Annotation = AnnotationQuery & { expr: string };
type Of<Kind extends string, Options, Field = Record<string, never>> =
  Omit<Panel<Partial<Options>, Partial<Field>>, "type" | "targets"> & { type: Kind; targets: Query[] };
type Row = Omit<RowPanel, "type"> & { type: "row" };
// The SDK writes what is for intervals alone into every variable.
type Variable = VariableModel & { auto?: boolean; auto_count?: number; auto_min?: string };
type Board = Json<
  Omit<Dashboard, "annotations" | "panels" | "templating"> & {
    annotations: { list: Annotation[] };
    panels: (Row | Of<"stat", Stat> | Of<"timeseries", TimeSeries, Lines> | Of<"heatmap", Heatmap, Cells>)[];
    templating: { list: Variable[] };
  }
>;

export const board: Board =
