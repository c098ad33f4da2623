import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;

/** The jobs in Kafka Streams. */
public class Streams {
    static final Map<String, String> ENV = System.getenv();
    static final String JOB = ENV.get("JOB"), SOURCE = ENV.get("SOURCE"), TARGET = ENV.get("TARGET");
    static final Serde<String> TEXT = Serdes.String();
    static final ObjectMapper JSON = new ObjectMapper();

    @JsonIgnoreProperties(ignoreUnknown = true)
    public static class Event {
        public String ad_id, event_type;
        public long event_time;
    }

    public static class Record {
        public long key, at;
    }

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        switch (JOB) {
            case "words": words(builder); break;
            case "ads": ads(builder); break;
            case "once": once(builder); break;
            case "stateless": case "filtered": stateless(builder); break;
            case "windowed": windowed(builder); break;
            default: counted(builder);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(3))));
        streams.start();
        Thread.currentThread().join();
    }

    static Properties settings() {
        boolean atRest = JOB.equals("windowed") || JOB.equals("filtered");
        boolean live = atRest || JOB.equals("stateless") || JOB.equals("keyed");
        Properties chosen = new Properties();
        chosen.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + SOURCE);
        chosen.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, ENV.get("BOOTSTRAP"));
        chosen.put(StreamsConfig.STATE_DIR_CONFIG, ENV.get("FOLDER") + "/state");
        chosen.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        chosen.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, atRest ? 100 : 1000);
        chosen.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, live ? 0 : 64 * 1024 * 1024);
        chosen.put("consumer.auto.offset.reset", "earliest");
        chosen.put("consumer.isolation.level", "read_committed");
        chosen.put("producer.linger.ms", live ? 0 : 50);
        chosen.put("producer.batch.size", 256 * 1024);
        if (!JOB.equals("state")) {
            chosen.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        if (JOB.equals("once") || atRest) {
            chosen.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        }
        return chosen;
    }

    static void words(StreamsBuilder builder) {
        KTable<String, Long> counts = builder.stream(SOURCE, Consumed.with(TEXT, TEXT))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
            .count(Materialized.with(TEXT, Serdes.Long()));
        write(counts.toStream().map((word, count) -> pair(word, "{\"word\":\"" + word + "\",\"count\":" + count + "}")));
    }

    static void ads(StreamsBuilder builder) throws IOException {
        Map<String, String> campaigns = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(ENV.get("CAMPAIGNS")))) {
            String[] parts = line.split("\"");
            campaigns.put(parts[3], parts[7]);
        }
        Consumed<String, Event> events = Consumed.with(TEXT, json(Event.class))
            .withTimestampExtractor((record, before) -> ((Event) record.value()).event_time);
        KStream<String, String> views = builder.stream(SOURCE, events)
            .filter((key, event) -> event.event_type.equals("view"))
            .map((key, event) -> pair(campaigns.get(event.ad_id), ""));
        write(views.groupByKey(Grouped.with(TEXT, TEXT))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1)))
            .count(Materialized.with(TEXT, Serdes.Long()))
            .toStream()
            .map((at, count) -> pair(at.key(), "{\"campaign\":\"" + at.key() + "\",\"window\":" + at.window().start() + ",\"count\":" + count + "}")));
    }

    static void windowed(StreamsBuilder builder) {
        Consumed<String, Record> records = Consumed.with(TEXT, json(Record.class))
            .withTimestampExtractor((record, before) -> ((Record) record.value()).at);
        write(builder.stream(SOURCE, records)
            .groupByKey(Grouped.with(TEXT, json(Record.class)))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
            .count(Materialized.with(TEXT, Serdes.Long()))
            .toStream()
            .map((at, count) -> pair(at.key(), "{\"key\":" + at.key() + ",\"window\":" + at.window().start() + ",\"count\":" + count + "}")));
    }

    static void once(StreamsBuilder builder) {
        builder.stream(SOURCE, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .to(TARGET, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    static void counted(StreamsBuilder builder) {
        Serde<Record> records = json(Record.class);
        KStream<String, Record> read = builder.stream(SOURCE, Consumed.with(TEXT, records));
        KTable<String, Long> counts = (JOB.equals("keyed")
                ? read.groupByKey(Grouped.with(TEXT, records))
                : read.map((key, record) -> pair(Long.toString(record.key), "")).groupByKey(Grouped.with(TEXT, TEXT)))
            .count(Materialized.with(TEXT, Serdes.Long()));
        write(counts.toStream().map((key, count) -> pair(key, "{\"key\":" + key + ",\"count\":" + count + "}")));
    }

    static void stateless(StreamsBuilder builder) {
        write(builder.stream(SOURCE, Consumed.with(TEXT, json(Record.class)))
            .filter((key, record) -> record.key >= 0)
            .map((key, record) -> pair(key, "{\"key\":" + record.key + ",\"at\":" + record.at + ",\"even\":" + (record.key % 2 == 0) + "}")));
    }

    static void write(KStream<String, String> results) {
        results.to(TARGET, Produced.with(TEXT, TEXT));
    }

    static org.apache.kafka.streams.KeyValue<String, String> pair(String key, String value) {
        return new org.apache.kafka.streams.KeyValue<>(key, value);
    }

    static <T> Serde<T> json(Class<T> kind) {
        ObjectReader reader = JSON.readerFor(kind);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return JSON.writeValueAsBytes(value);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return reader.readValue(bytes);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
    }
}
