package shop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** A Busway server for tests: started with the tests, its clock moved by them. */
final class Busway implements AutoCloseable {
    final String connectionString;
    private final Process process;
    private final HttpClient http = HttpClient.newHttpClient();

    private Busway(Process process, String connectionString) {
        this.process = process;
        this.connectionString = connectionString;
    }

    static Busway start() throws IOException {
        String command = System.getenv().getOrDefault("BUSWAY", "busway");
        Process process = new ProcessBuilder(List.of(command, "serve", "--memory", "--port", "0",
                "--allow-clock", "--print-connection-string"))
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start();
        BufferedReader lines = process.inputReader();
        String connectionString = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (connectionString == null && line.contains("UseDevelopmentEmulator=true")) {
                connectionString = line;
            }
            if (line.startsWith("ready")) {
                return new Busway(process, connectionString);
            }
        }
        throw new IOException(command + " serve has ended; its log says why");
    }

    /** Everything that falls due until then is done when this returns. */
    void advance(Duration span) {
        request("POST", "/$busway/clock", "{\"advance_ms\": " + span.toMillis() + "}");
    }

    /** What time it is for messages: due times are to be given in it, once the clock was moved. */
    Instant now() {
        Matcher found = Pattern.compile("\"now_ms\": (\\d+)")
            .matcher(request("GET", "/$busway/clock", ""));
        found.find();
        return Instant.ofEpochMilli(Long.parseLong(found.group(1)));
    }

    /** No messages, no entities but the configured ones, and the real time again. */
    void reset() {
        request("POST", "/$busway/reset", "{}");
    }

    /** `properties` are elements of the service's description, such as LockDuration. */
    String createQueue(String name, String properties) {
        request("PUT", "/" + name + "?api-version=2021-05",
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">"
            + "<QueueDescription xmlns=\""
            + "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\">"
            + properties + "</QueueDescription></content></entry>");
        return name;
    }

    private String request(String method, String path, String body) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url() + path))
            .header("Authorization", token())
            .method(method, HttpRequest.BodyPublishers.ofString(body))
            .build();
        try {
            HttpResponse<String> reply = http.send(request, HttpResponse.BodyHandlers.ofString());
            if (reply.statusCode() >= 400) {
                throw new IllegalStateException(reply.statusCode() + " " + reply.body());
            }
            return reply.body();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private String url() {
        return part("Endpoint").replaceFirst("^sb:", "http:").replaceFirst("/$", "");
    }

    private String part(String name) {
        Matcher found = Pattern.compile(name + "=([^;]+)").matcher(connectionString);
        found.find();
        return found.group(1);
    }

    private String token() {
        try {
            String resource = encoded("http://" + URI.create(url()).getHost() + "/");
            long expires = Instant.now().getEpochSecond() + 300;
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(part("SharedAccessKey").getBytes(StandardCharsets.UTF_8),
                "HmacSHA256"));
            byte[] signed =
                mac.doFinal((resource + "\n" + expires).getBytes(StandardCharsets.UTF_8));
            return "SharedAccessSignature sr=" + resource
                + "&sig=" + encoded(Base64.getEncoder().encodeToString(signed))
                + "&se=" + expires + "&skn=" + part("SharedAccessKeyName");
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    @Override
    public void close() throws InterruptedException {
        process.destroy();
        process.waitFor();
    }
}
