// Events from standard input to Kafka, by kafka-clients: java -cp 'libs/*' WithKafkaClients.java SERVERS TOPIC < events.jsonl
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class WithKafkaClients {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Future<RecordMetadata>> deliveries = new ArrayList<>();
        try (KafkaProducer<String, String> clicks =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String model = json.readTree(line).get("model").asText();
                deliveries.add(clicks.send(new ProducerRecord<>(arguments[1], model, line)));
            }
            clicks.flush();
            for (Future<RecordMetadata> delivery : deliveries) {
                // Throws for an event that the broker did not take.
                delivery.get();
            }
        }
    }
}
