import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink in batch mode. Each line on standard input is a JSON object with `sql` and `zone`, each line on standard output its
 * answer: `types` and `rows`, or `error`. Values are texts, lists of texts, or null.
 */
public final class Recorder {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        var json = new ObjectMapper();
        var environment = TableEnvironment.create(EnvironmentSettings.inBatchMode());
        environment.getConfig().set("parallelism.default", "1");
        environment.getConfig().set("table.exec.resource.default-parallelism", "1");
        answers.println("ready");
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            environment.getConfig().set("table.local-time-zone", request.get("zone").asText());
            answers.println(json.writeValueAsString(answer(environment, request.get("sql").asText())));
        }
        System.exit(0);
    }

    private static Map<String, ?> answer(TableEnvironment environment, String sql) {
        try {
            TableResult result = environment.executeSql(sql);
            var types = new ArrayList<String>();
            result.getResolvedSchema().getColumnDataTypes().forEach(type -> types.add(type.toString()));
            var rows = new ArrayList<List<Object>>();
            try (CloseableIterator<Row> found = result.collect()) {
                while (found.hasNext()) {
                    rows.add(values(found.next()));
                }
            }
            var answer = new LinkedHashMap<String, Object>();
            answer.put("types", types);
            answer.put("rows", rows);
            return answer;
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            String message = String.valueOf(cause.getMessage());
            return Map.of("error", message.substring(0, Math.min(message.length(), 200)).replace('\n', ' '));
        }
    }

    static List<Object> values(Row row) {
        var values = new ArrayList<>();
        for (int i = 0; i < row.getArity(); i++) {
            values.add(value(row.getField(i)));
        }
        return values;
    }

    private static Object value(Object found) {
        if (found == null) {
            return null;
        }
        if (found instanceof Row row) {
            return values(row);
        }
        if (found instanceof Map<?, ?> map) {
            var pairs = new ArrayList<>();
            map.forEach((key, value) -> {
                var pair = new ArrayList<>();
                pair.add(value(key));
                pair.add(value(value));
                pairs.add(pair);
            });
            return pairs;
        }
        if (found instanceof byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
        if (found.getClass().isArray()) {
            var elements = new ArrayList<>();
            for (int i = 0; i < Array.getLength(found); i++) {
                elements.add(value(Array.get(found, i)));
            }
            return elements;
        }
        if (found instanceof BigDecimal number) {
            return number.toPlainString();
        }
        if (found instanceof Instant instant) {
            return instant.toString();
        }
        return found.toString();
    }
}
