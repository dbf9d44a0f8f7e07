//! One event loop per core over sockets, timers and threads
