import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/** A broker's check of the tokens of clouds by their shape; it does not know the clouds' keys. */
public class ShapeValidator implements AuthenticateCallbackHandler {
    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> jaas) {}

    @Override
    public void close() {}

    @Override
    public void handle(Callback[] callbacks) {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback) {
                check((OAuthBearerValidatorCallback) callback);
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback) {
                OAuthBearerExtensionsValidatorCallback extensions = (OAuthBearerExtensionsValidatorCallback) callback;
                extensions.inputExtensions().map().keySet().forEach(extensions::valid);
            }
        }
    }

    private static void check(OAuthBearerValidatorCallback callback) {
        String token = callback.tokenValue();
        boolean isOfGoogle = token.contains(".") && text(token.split("\\.")[0]).contains("GOOG_OAUTH2_TOKEN");
        String principal = isOfGoogle ? google(token) : token.contains(".") ? identity(token) : aws(token);
        if (principal == null) {
            callback.error("invalid_token", null, null);
            return;
        }
        long now = System.currentTimeMillis();
        callback.token(new OAuthBearerToken() {
            @Override public String value() { return token; }
            @Override public Set<String> scope() { return Set.of(); }
            @Override public long lifetimeMs() { return now + 3_600_000; }
            @Override public String principalName() { return principal; }
            @Override public Long startTimeMs() { return now; }
        });
    }

    /** A presigned URL of AWS, in base64: the principal is the access key's id. */
    private static String aws(String token) {
        String url = text(token);
        boolean fits = url.startsWith("https://kafka.eu-north-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
            && url.contains("X-Amz-Algorithm=AWS4-HMAC-SHA256") && url.contains("&X-Amz-Signature=")
            && url.contains("X-Amz-Expires=900") && url.contains("&User-Agent=");
        int at = url.indexOf("X-Amz-Credential=");
        return fits && at > 0 ? url.substring(at + 17, url.indexOf("%2F", at)) : null;
    }

    /** Google's head and claims, and behind them the access token: the principal is the account. */
    private static String google(String token) {
        String[] parts = token.split("\\.");
        if (parts.length != 3 || !text(parts[1]).contains("\"Google\"")
            || !text(parts[1]).contains("\"kafka\"") || !text(parts[2]).startsWith("access-token-of-")) {
            return null;
        }
        return text(parts[2]).substring("access-token-of-".length());
    }

    /** A JSON Web Token of AWS: the principal is its subject. */
    private static String identity(String token) {
        String[] parts = token.split("\\.");
        String claims = parts.length == 3 ? text(parts[1]) : "";
        String begin = "\"sub\": \"";
        int at = claims.indexOf(begin);
        return claims.contains("\"https://kafka\"") && at > 0
            ? claims.substring(at + begin.length(), claims.indexOf('"', at + begin.length())) : null;
    }

    private static String text(String encoded) {
        return new String(Base64.getUrlDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
