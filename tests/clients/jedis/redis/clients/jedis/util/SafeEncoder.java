package redis.clients.jedis.util;

import java.nio.charset.StandardCharsets;

/** A stand-in for the class of the same name in Jedis. */
public final class SafeEncoder {
  public static byte[] encode(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }
}
