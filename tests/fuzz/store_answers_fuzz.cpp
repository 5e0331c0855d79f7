// What a client of the store is answered, perhaps by what is no store: parallel/comm/tcp_store.h.

#include <sys/socket.h>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp_socket.h"
#include "parallel/comm/tcp_store.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TcpSocket listening = listen_at({"127.0.0.1", 0});
  TcpStore store({"127.0.0.1", port_of(listening)}, "rank 0", TcpStore::Seconds(30));
  {
    const TcpSocket stranger(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    static_cast<void>(stranger.send(data, size));
    ::shutdown(stranger.descriptor(), SHUT_WR);
    fuzz::accepts<CommError>([&] {
      for (;;) {  // until the answers are used up
        store.add("key", 1);
        store.get("key");
        store.pop("key");
      }
    });
  }
  return 0;
}
