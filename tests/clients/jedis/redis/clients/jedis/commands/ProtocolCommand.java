package redis.clients.jedis.commands;

/** A stand-in for the interface of the same name in Jedis. */
public interface ProtocolCommand {
  byte[] getRaw();
}
