package redis.clients.jedis;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.List;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.util.SafeEncoder;

/**
 * A stand-in for Jedis, which no package of Debian has: the calls that the example of docs/locks.md uses, with the signatures and the replies of the
 * library (integers are Long, texts byte[], arrays List, nothing null). It speaks to a real node.
 */
public final class Jedis implements AutoCloseable {
  private final Socket socket;
  private final DataInputStream input;

  public Jedis(String host, int port, int timeoutMillis) {
    try {
      socket = new Socket(host, port);
      socket.setSoTimeout(timeoutMillis);
      input = new DataInputStream(socket.getInputStream());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  public Object sendCommand(ProtocolCommand command, String... args) {
    try {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      out.write(SafeEncoder.encode("*" + (args.length + 1) + "\r\n"));
      bulk(out, command.getRaw());
      for (String arg : args) {
        bulk(out, SafeEncoder.encode(arg));
      }
      socket.getOutputStream().write(out.toByteArray());
      return reply();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static void bulk(ByteArrayOutputStream out, byte[] bytes) throws IOException {
    out.write(SafeEncoder.encode("$" + bytes.length + "\r\n"));
    out.write(bytes);
    out.write(SafeEncoder.encode("\r\n"));
  }

  @SuppressWarnings("deprecation")
  private Object reply() throws IOException {
    String line = input.readLine();
    String rest = line.substring(1);
    switch (line.charAt(0)) {
      case '+':
        return SafeEncoder.encode(rest);
      case ':':
        return Long.valueOf(rest);
      case '$':
        if (rest.equals("-1")) {
          return null;
        }
        byte[] bytes = new byte[Integer.parseInt(rest)];
        input.readFully(bytes);
        input.readLine();
        return bytes;
      case '*':
        if (rest.equals("-1")) {
          return null;
        }
        List<Object> items = new ArrayList<>();
        for (int left = Integer.parseInt(rest); left > 0; left--) {
          items.add(reply());
        }
        return items;
      default:
        throw new IllegalStateException(rest);
    }
  }

  @Override
  public void close() {
    try {
      socket.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
