fn deploy(con: &mut redis::Connection) -> redis::RedisResult<()> {
    let mut acquire = redis::cmd("LOCK.ACQUIRE");
    acquire.arg("deploy").arg("alice").arg(10_000).arg("WAIT").arg(60_000);
    let granted: Option<(i64, i64)> = acquire.query(con)?; // token, milliseconds; nothing: busy
    let Some((token, _)) = granted else { return Ok(()) };
    let written = redis::cmd("LOCK.DO").arg("deploy").arg(token).arg("SET").arg("version").arg("42").exec(con);
    redis::cmd("LOCK.RELEASE").arg("deploy").arg(token).exec(con)?;
    written
}
