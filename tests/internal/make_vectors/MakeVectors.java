// Writes tests/internal/vectors.json: every record type and version of Kafka's internal topics, filled by a seeded
// generator, as bytes (base64) and as the JSON that Kafka's own converters make of it. Run with Kafka 4.3.1's jars:
//   java -Dfile.encoding=UTF-8 -cp 'LIBS/*' MakeVectors.java > ../vectors.json
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;
import org.apache.kafka.common.protocol.types.*;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.serialization.AbstractApiMessageSerde;

import java.lang.reflect.Field;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.util.*;

public class MakeVectors {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Random RANDOM = new Random(20240917);
    static final List<String> TEXTS = List.of("", "name", "größe-€-\uD83D\uDE00", "x".repeat(140));
    static final List<String> LINES = new ArrayList<>();
    // How a message is filled: as Kafka's classes start; every nullable field null; nothing null or empty; at random,
    // with tags that no schema knows.
    enum Fill { DEFAULT, NULLS, FULL, UNKNOWN_TAGS }

    public static void main(String[] args) throws Exception {
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values())
            coordinator("__consumer_offsets", type.id(), type.newRecordKey(), type.newRecordValue());
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values())
            coordinator("__transaction_state", type.id(), type.newRecordKey(), type.newRecordValue());
        for (var type : org.apache.kafka.coordinator.share.generated.CoordinatorRecordType.values())
            coordinator("__share_group_state", type.id(), type.newRecordKey(), type.newRecordValue());
        for (var type : org.apache.kafka.common.metadata.MetadataRecordType.values())
            framed("__cluster_metadata", type.newMetadataRecord());
        for (var type : org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType.values())
            framed("__remote_log_metadata", type.newMetadataRecord());
        for (Message message : List.of(new LeaderChangeMessage(), new SnapshotHeaderRecord(),
                new SnapshotFooterRecord(), new KRaftVersionRecord(), new VotersRecord()))
            bare("control", message);
        for (Message message : List.of(new ConsumerProtocolSubscription(), new ConsumerProtocolAssignment()))
            bare("protocol", message);
        System.out.println("[\n" + String.join(",\n", LINES) + "\n]");
    }

    static void coordinator(String topic, short id, ApiMessage key, ApiMessage value) throws Exception {
        fill(key, (short) 0, Fill.FULL);
        for (short version = value.lowestSupportedVersion(); version <= value.highestSupportedVersion(); version++)
            for (Fill kind : Fill.values()) {
                Message filled = fill(fresh(value), version, kind);
                ObjectNode line = line(topic, value, id, version);
                line.put("key", MessageUtil.toCoordinatorTypePrefixedBytes(key));
                line.set("keyJson", json(key, (short) 0));
                line.put("value", MessageUtil.toVersionPrefixedBytes(version, filled));
                add(line, filled, version);
            }
    }

    static void framed(String topic, ApiMessage value) throws Exception {
        var serde = new AbstractApiMessageSerde() {
            @Override public ApiMessage apiMessageFor(short apiKey) { throw new UnsupportedOperationException(); }
        };
        for (short version = value.lowestSupportedVersion(); version <= value.highestSupportedVersion(); version++)
            for (Fill kind : Fill.values()) {
                ApiMessage filled = (ApiMessage) fill(fresh(value), version, kind);
                var cache = new ObjectSerializationCache();
                var pair = new ApiMessageAndVersion(filled, version);
                ByteBuffer out = ByteBuffer.allocate(serde.recordSize(pair, cache));
                serde.write(pair, cache, new ByteBufferAccessor(out));
                add(line(topic, value, value.apiKey(), version).put("value", out.array()), filled, version);
            }
    }

    static void bare(String topic, Message value) throws Exception {
        for (short version = 0; version <= value.highestSupportedVersion(); version++)
            for (Fill kind : Fill.values()) {
                Message filled = fill(fresh(value), version, kind);
                byte[] bytes = MessageUtil.toByteBufferAccessor(filled, version).buffer().array();
                add(line(topic, value, -1, version).put("value", bytes), filled, version);
            }
    }

    static ObjectNode line(String topic, Message value, int id, int version) {
        ObjectNode line = JSON.createObjectNode().put("topic", topic);
        return line.put("name", value.getClass().getSimpleName()).put("id", id).put("version", version);
    }

    static void add(ObjectNode line, Message filled, short version) throws Exception {
        line.set("valueJson", json(filled, version));
        LINES.add(JSON.writeValueAsString(line));
    }

    static JsonNode json(Message message, short version) throws Exception {
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        return (JsonNode) converter.getMethod("write", message.getClass(), short.class).invoke(null, message, version);
    }

    @SuppressWarnings("unchecked")
    static <T> T fresh(T like) throws Exception {
        return (T) like.getClass().getConstructor().newInstance();
    }

    static Message fill(Message message, short version, Fill kind) throws Exception {
        if (kind == Fill.DEFAULT) return message;
        Schema schema = ((Schema[]) message.getClass().getField("SCHEMAS").get(null))[version];
        boolean flexible = false;
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields section) {
                flexible = true;
                for (var tagged : section.fields().values())
                    set(message, tagged, version, kind);
            } else {
                set(message, bound.def, version, kind);
            }
        }
        if (flexible && kind == Fill.UNKNOWN_TAGS)
            for (int tag : new int[] {40, 300})
                message.unknownTaggedFields().add(new RawTaggedField(tag, bytes()));
        return message;
    }

    static void set(Message message, org.apache.kafka.common.protocol.types.Field def, short version, Fill kind)
            throws Exception {
        String name = camel(def.name);
        Field field = Arrays.stream(message.getClass().getDeclaredFields())
            .filter(f -> f.getName().equalsIgnoreCase(name)).findFirst().orElseThrow();
        field.setAccessible(true);
        boolean chance = kind == Fill.NULLS || kind == Fill.UNKNOWN_TAGS && RANDOM.nextInt(4) == 0;
        field.set(message, chance && def.type.isNullable() ? null : value(field.getGenericType(), version, kind));
    }

    static Object value(java.lang.reflect.Type type, short version, Fill kind) throws Exception {
        if (type == boolean.class) return RANDOM.nextBoolean();
        if (type == byte.class || type == Byte.class) return (byte) RANDOM.nextInt();
        if (type == short.class || type == Short.class) return (short) RANDOM.nextInt();
        if (type == int.class) return RANDOM.nextInt(65536);   // also the type of uint16
        if (type == Integer.class) return RANDOM.nextInt();
        if (type == long.class) return RANDOM.nextLong();
        if (type == double.class) return RANDOM.nextGaussian();
        if (type == String.class) return TEXTS.get(RANDOM.nextInt(TEXTS.size()));
        if (type == Uuid.class) return new Uuid(RANDOM.nextLong(), RANDOM.nextLong());
        if (type == byte[].class) return bytes();
        if (type == ByteBuffer.class) return ByteBuffer.wrap(bytes());
        if (type instanceof ParameterizedType list)
            return elements(new ArrayList<>(), list.getActualTypeArguments()[0], version, kind);
        Class<?> given = (Class<?>) type;
        if (!AbstractCollection.class.isAssignableFrom(given))
            return fill((Message) given.getConstructor().newInstance(), version, kind);
        var parent = (ParameterizedType) given.getGenericSuperclass();
        return elements(collection(given), parent.getActualTypeArguments()[0], version, kind);
    }

    @SuppressWarnings("unchecked")
    static Collection<Object> collection(Class<?> given) throws Exception {
        return (Collection<Object>) given.getConstructor().newInstance();
    }

    static Object elements(Collection<Object> into, java.lang.reflect.Type type, short version, Fill kind)
            throws Exception {
        for (int i = kind == Fill.FULL ? 2 : RANDOM.nextInt(3); i > 0; i--) into.add(value(type, version, kind));
        return into;
    }

    static byte[] bytes() {
        byte[] made = new byte[RANDOM.nextInt(6)];
        RANDOM.nextBytes(made);
        return made;
    }

    static String camel(String snake) {
        StringBuilder out = new StringBuilder();
        for (String part : snake.split("_"))
            out.append(Character.toUpperCase(part.charAt(0))).append(part.substring(1));
        return out.toString();
    }
}
