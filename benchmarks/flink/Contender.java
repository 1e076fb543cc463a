import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.connector.kafka.dynamic.metadata.ClusterMetadata;
import org.apache.flink.connector.kafka.dynamic.metadata.KafkaMetadataService;
import org.apache.flink.connector.kafka.dynamic.metadata.KafkaStream;
import org.apache.flink.connector.kafka.dynamic.source.DynamicKafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.SqlParserException;
import org.apache.flink.table.api.TableException;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/**
 * Flink in one JVM: a cluster with two slots that stays up. It runs the requested jobs, one at a time.
 *
 * <p>Each line on standard input is a JSON list [function, arguments], and each line on standard output is its JSON result.
 * The seconds of a job are those of Flink's JobManager, from the job's arrival to its end. So they contain no submission.
 */
public final class Contender {
    private static final int SLOTS = 2;
    private static final String STREAM = "stream";
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss.SSS");

    private final StreamExecutionEnvironment environment;
    private final StreamTableEnvironment tables;

    private Contender(MiniCluster cluster, String mode) throws Exception {
        var address = cluster.getRestAddress().get();
        environment = StreamExecutionEnvironment.createRemoteEnvironment(address.getHost(), address.getPort());
        environment.setParallelism(SLOTS);
        var settings = mode.equals("streaming") ? EnvironmentSettings.inStreamingMode() : EnvironmentSettings.inBatchMode();
        tables = StreamTableEnvironment.create(environment, settings);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        var configuration = new Configuration();
        configuration.set(RestOptions.BIND_PORT, "0");
        var shape = new MiniClusterConfiguration.Builder().setConfiguration(configuration);
        var json = new ObjectMapper();
        try (var cluster = new MiniCluster(shape.setNumTaskManagers(1).setNumSlotsPerTaskManager(SLOTS).build())) {
            cluster.start();
            var contender = new Contender(cluster, arguments[0]);
            answers.println("ready");
            var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                JsonNode request = json.readTree(line);
                answers.println(json.writeValueAsString(contender.answer(request.get(0).asText(), request.get(1))));
            }
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // whatever threads are left
    }

    private Map<String, ?> answer(String function, JsonNode arguments) throws Exception {
        return switch (function) {
            case "read" -> read(arguments.get("clusters"), arguments.get("topic").asText());
            case "execute" -> execute(arguments.get("sql").asText());
            case "insert" -> insert(arguments.get("sql").asText());
            case "count" -> count(arguments.get("sql").asText());
            case "rows" -> rows(arguments.get("sql").asText());
            default -> throw new IllegalArgumentException("no function " + function);
        };
    }

    /** Read a topic on some clusters to its end with the DynamicKafkaSource, only the values, and discard them. */
    private Map<String, ?> read(JsonNode clusters, String topic) throws Exception {
        var servers = new HashMap<String, String>();
        clusters.fields().forEachRemaining(cluster -> servers.put(cluster.getKey(), cluster.getValue().asText()));
        DynamicKafkaSource<byte[]> source =
                DynamicKafkaSource.<byte[]>builder()
                        .setStreamIds(Set.of(STREAM))
                        .setKafkaMetadataService(new Clusters(servers, topic))
                        .setDeserializer(new Values())
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.latest())
                        .build();
        Values.OPEN.clear();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "read").sinkTo(new DiscardingSink<>());
        JobExecutionResult result = environment.execute();
        long rows = Values.OPEN.stream().mapToLong(values -> values.rows).sum();
        return Map.of("seconds", result.getNetRuntime() / 1000.0, "rows", rows);
    }

    /** Execute a statement that starts no job. */
    private Map<String, ?> execute(String sql) {
        tables.executeSql(sql);
        return Map.of();
    }

    /** Run an INSERT to its end. */
    private Map<String, ?> insert(String sql) throws Exception {
        TableResult result = tables.executeSql(sql);
        JobExecutionResult finished = result.getJobClient().orElseThrow().getJobExecutionResult().get();
        return Map.of("seconds", finished.getNetRuntime() / 1000.0);
    }

    /** Run a query that returns one number. */
    private Map<String, ?> count(String sql) throws Exception {
        try (CloseableIterator<Row> rows = tables.executeSql(sql).collect()) {
            return Map.of("rows", rows.next().getField(0));
        }
    }

    /** Run a query, and return the rows that are there in the end, as texts and in any order, or what is wrong with it. */
    private Map<String, ?> rows(String sql) throws Exception {
        var found = new ArrayList<List<String>>();
        try (CloseableIterator<Row> rows = tables.executeSql(sql).collect()) {
            while (rows.hasNext()) {
                Row row = rows.next();
                var values = new ArrayList<String>();
                for (int i = 0; i < row.getArity(); i++) {
                    Object value = row.getField(i);
                    values.add(value instanceof LocalDateTime time ? TIME.format(time) : value == null ? null : value.toString());
                }
                if (row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER) {
                    found.add(values);
                } else {
                    found.remove(values);
                }
            }
        } catch (SqlParserException | TableException | ValidationException error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return Map.of("error", cause.getMessage().split("\n")[0]);
        }
        return Map.of("rows", found);
    }

    /** A record's value, as in `KafkaRecordDeserializationSchema.valueOnly`; it also counts. */
    private static final class Values implements KafkaRecordDeserializationSchema<byte[]> {
        /** Those of the job that runs, in all its tasks. */
        static final List<Values> OPEN = new CopyOnWriteArrayList<>();

        private transient volatile boolean opened;
        private transient long rows;

        @Override
        public void open(DeserializationSchema.InitializationContext context) {
            if (!opened) { // a reader opens it once for each cluster
                opened = true;
                OPEN.add(this);
            }
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<byte[]> out) {
            rows++;
            out.collect(record.value());
        }

        @Override
        public TypeInformation<byte[]> getProducedType() {
            return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
        }
    }

    /** One stream: the same topic on some clusters. */
    private static final class Clusters implements KafkaMetadataService {
        private final HashMap<String, String> servers;
        private final String topic;

        Clusters(HashMap<String, String> servers, String topic) {
            this.servers = servers;
            this.topic = topic;
        }

        @Override
        public Set<KafkaStream> getAllStreams() {
            var clusters = new HashMap<String, ClusterMetadata>();
            servers.forEach((cluster, address) -> {
                var properties = new Properties();
                properties.setProperty("bootstrap.servers", address);
                clusters.put(cluster, new ClusterMetadata(Set.of(topic), properties));
            });
            return Set.of(new KafkaStream(STREAM, clusters));
        }

        @Override
        public Map<String, KafkaStream> describeStreams(Collection<String> streamIds) {
            return Map.of(STREAM, getAllStreams().iterator().next());
        }

        @Override
        public boolean isClusterActive(String cluster) {
            return servers.containsKey(cluster);
        }

        @Override
        public void close() {}
    }
}
