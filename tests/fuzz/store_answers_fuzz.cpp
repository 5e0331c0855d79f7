// What a client of the store is answered, perhaps by what is no store: parallel/comm/tcp/tcp_store.h.

#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "parallel/comm/communicator.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "parallel/comm/tcp/tcp_store_message.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TcpSocket listening = listen_at({"127.0.0.1", 0});
  std::string answers;
  append_head(answers, TcpStoreAnswer{0, TcpStoreAnswer::kDone, 0});  // to the client's hello
  answers += fuzz::text_of(data, size);
  const std::jthread server([&] {
    pollfd query{.fd = listening.descriptor(), .events = POLLIN, .revents = 0};
    static_cast<void>(::poll(&query, 1, -1));
    const TcpSocket socket(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    static_cast<void>(socket.send(answers.data(), answers.size()));  // the client may be gone by now
    ::shutdown(socket.descriptor(), SHUT_WR);
    for (char request = 0; ::recv(socket.descriptor(), &request, 1, 0) > 0;) {
    }
  });
  fuzz::accepts<CommError>([&] {
    TcpStore store({{"127.0.0.1", port_of(listening)}, "token"}, "rank 0", TcpStore::Seconds(30));
    for (;;) {  // until the answers are used up
      store.add("key", 1);
      store.get("key");
      store.pop("key");
    }
  });
  return 0;
}
