import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;

/** The campaign of an ad, for Flink: a map that is read once. */
public class CampaignOf extends ScalarFunction {
    private transient Map<String, String> campaigns;

    @Override
    public void open(FunctionContext context) throws IOException {
        campaigns = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(System.getenv("CAMPAIGNS")))) {
            String[] parts = line.split("\"");
            campaigns.put(parts[3], parts[7]);
        }
    }

    public String eval(String ad) {
        return campaigns.get(ad);
    }
}
