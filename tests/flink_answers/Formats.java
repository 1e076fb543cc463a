import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.internal.TableEnvironmentInternal;
import org.apache.flink.table.catalog.ObjectIdentifier;
import org.apache.flink.table.catalog.ResolvedCatalogTable;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.conversion.DataStructureConverter;
import org.apache.flink.table.data.conversion.DataStructureConverters;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.runtime.connector.source.ScanRuntimeProviderContext;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;
import org.apache.flink.util.SimpleUserCodeClassLoader;
import org.apache.flink.util.UserCodeClassLoader;

/**
 * Flink's formats, as a connector calls them. Each line on standard input is a JSON object with the columns of a table, its
 * `options`, and `messages` in hexadecimal digits. Each line on standard output is the answer: an `error` of the table, or for
 * each message its rows or an `error`. The first value of a row is its kind. Values are texts, lists, or null.
 */
public final class Formats {
    private static final ObjectIdentifier NAME = ObjectIdentifier.of("default_catalog", "default_database", "t");

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        var json = new ObjectMapper();
        var environment = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        environment.getConfig().set("table.local-time-zone", "UTC");
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(json.writeValueAsString(answer((TableEnvironmentInternal) environment, json.readTree(line))));
        }
        System.exit(0);
    }

    private static Object answer(TableEnvironmentInternal environment, JsonNode request) {
        var found = new ArrayList<>();
        try {
            var table = table(environment, request);
            var rows = DataStructureConverters.getConverter(table.getResolvedSchema().toPhysicalRowDataType());
            rows.open(Formats.class.getClassLoader());
            decoder(table); // raises if the table is wrong
            for (JsonNode message : request.get("messages")) {
                try { // each with its own decoder: in Avro, bytes that are left over begin the next message
                    found.add(decoded(decoder(table), rows, HexFormat.of().parseHex(message.asText())));
                } catch (Throwable error) {
                    found.add(message(error));
                }
            }
        } catch (Throwable error) {
            return message(error);
        }
        return found;
    }

    private static ResolvedCatalogTable table(TableEnvironmentInternal environment, JsonNode request) {
        var options = new ArrayList<>(List.of("'connector' = 'bytes'"));
        request.get("options").fields().forEachRemaining(
                option -> options.add("'" + option.getKey() + "' = '" + option.getValue().asText().replace("'", "''") + "'"));
        environment.executeSql("DROP TABLE IF EXISTS t");
        environment.executeSql(
                "CREATE TABLE t (" + request.get("columns").asText() + ") WITH (" + String.join(", ", options) + ")");
        return environment.getCatalogManager().getTableOrError(NAME).getResolvedTable();
    }

    private static DeserializationSchema<RowData> decoder(ResolvedCatalogTable table) throws Exception {
        var context = new FactoryUtil.DefaultDynamicTableContext(
                NAME, table, Map.of(), new Configuration(), Formats.class.getClassLoader(), false);
        var helper = FactoryUtil.createTableFactoryHelper(new Bytes(), context);
        var format = helper.discoverDecodingFormat(DeserializationFormatFactory.class, FactoryUtil.FORMAT);
        helper.validate();
        var type = table.getResolvedSchema().toPhysicalRowDataType();
        var decoder = format.createRuntimeDecoder(ScanRuntimeProviderContext.INSTANCE, type);
        decoder.open(new Opening());
        return decoder;
    }

    private static Object decoded(
            DeserializationSchema<RowData> decoder, DataStructureConverter<Object, Object> rows, byte[] message)
            throws Exception {
        var found = new ArrayList<>();
        decoder.deserialize(message, new Collector<>() {
            public void collect(RowData row) {
                if (row != null) {
                    var values = Recorder.values((Row) rows.toExternal(row));
                    values.add(0, row.getRowKind().shortString());
                    found.add(values);
                }
            }

            public void close() {}
        });
        return found;
    }

    private static Map<String, String> message(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
        return Map.of("error", text.substring(0, Math.min(text.length(), 160)).replace('\n', ' '));
    }

    /** A connector that has a format and nothing else. */
    private static final class Bytes implements DynamicTableSourceFactory {
        public String factoryIdentifier() {
            return "bytes";
        }

        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of(FactoryUtil.FORMAT);
        }

        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        public DynamicTableSource createDynamicTableSource(Context context) {
            throw new UnsupportedOperationException("Only its format is used");
        }
    }

    private static final class Opening implements DeserializationSchema.InitializationContext {
        public MetricGroup getMetricGroup() {
            return new UnregisteredMetricsGroup();
        }

        public UserCodeClassLoader getUserCodeClassLoader() {
            return SimpleUserCodeClassLoader.create(Formats.class.getClassLoader());
        }
    }
}
