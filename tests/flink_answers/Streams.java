import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Flink over streams that end. Standard input is a JSON object with `tables` and `queries`; standard output has an object with
 * `rows` or `error` for each query. A table with a `key` is a changelog, whose rows end with their kind.
 */
public final class Streams {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        var json = new ObjectMapper();
        var request = json.readTree(System.in);
        for (JsonNode query : request.get("queries")) {
            answers.println(json.writeValueAsString(answer(request.get("tables"), query.asText())));
        }
        System.exit(0);
    }

    private static Map<String, ?> answer(JsonNode tables, String sql) {
        try {
            var flink = StreamExecutionEnvironment.getExecutionEnvironment();
            flink.setParallelism(1);
            var environment = StreamTableEnvironment.create(flink);
            for (Map.Entry<String, JsonNode> table : tables.properties()) {
                add(flink, environment, table.getKey(), table.getValue());
            }
            var rows = new ArrayList<List<String>>();
            try (var found = environment.executeSql(sql).collect()) {
                while (found.hasNext()) {
                    Row row = found.next();
                    var values = new ArrayList<String>();
                    for (int i = 0; i < row.getArity(); i++) {
                        values.add(row.getField(i) == null ? null : row.getField(i).toString());
                    }
                    rows.add(values);
                }
            }
            return Map.of("rows", rows);
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return Map.of("error", String.valueOf(cause.getMessage()).split("\n")[0]);
        }
    }

    private static void add(StreamExecutionEnvironment flink, StreamTableEnvironment environment, String name, JsonNode table) {
        String key = table.path("key").asText();
        var schema = Schema.newBuilder();
        var names = new ArrayList<String>();
        var types = new ArrayList<TypeInformation<?>>();
        for (Map.Entry<String, JsonNode> column : table.get("columns").properties()) {
            String type = column.getValue().asText();
            names.add(column.getKey());
            types.add(type.startsWith("TIMESTAMP") ? Types.LOCAL_DATE_TIME : type.startsWith("DECIMAL") ? Types.BIG_DEC : Types.STRING);
            schema.column(column.getKey(), column.getKey().equals(key) ? type + " NOT NULL" : type);
        }
        String time = table.get("time").asText();
        schema.watermark(time, time + " - INTERVAL '5' SECOND");
        if (!key.isEmpty()) {
            schema.primaryKey(key);
        }
        var rows = new ArrayList<Row>();
        for (JsonNode values : table.get("rows")) {
            Row row = Row.withPositions(names.size());
            for (int i = 0; i < names.size(); i++) {
                String text = values.get(i).isNull() ? null : values.get(i).asText();
                row.setField(i, text == null ? null : value(text, types.get(i)));
            }
            row.setKind(key.isEmpty() ? RowKind.INSERT : values.get(names.size()).asText().equals("-D") ? RowKind.DELETE : RowKind.UPDATE_AFTER);
            rows.add(row);
        }
        TypeInformation<Row> type = Types.ROW_NAMED(names.toArray(new String[0]), types.toArray(new TypeInformation[0]));
        DataStream<Row> stream = flink.fromData(rows, type);
        var mode = key.isEmpty() ? ChangelogMode.insertOnly() : ChangelogMode.upsert();
        environment.createTemporaryView(name, environment.fromChangelogStream(stream, schema.build(), mode));
    }

    private static Object value(String text, TypeInformation<?> type) {
        if (type == Types.LOCAL_DATE_TIME) {
            return LocalDateTime.parse(text.replace(' ', 'T'));
        }
        return type == Types.BIG_DEC ? new BigDecimal(text) : text;
    }
}
