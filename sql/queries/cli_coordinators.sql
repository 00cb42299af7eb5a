select host, pid, since, heartbeat_age from jeet.coordinators;
