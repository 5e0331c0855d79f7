// What clients, or strangers, send to the store: parallel/comm/tcp/tcp_store.h. The token is the one of make_seeds.cpp.

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "parallel/comm/tcp/tcp_socket.h"
#include "parallel/comm/tcp/tcp_store.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const TcpStoreServer server({{"127.0.0.1", 0}, "token"}, {}, [](const std::string&) {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);  // against hangs only
  const TcpSocket socket = connect_to(server.address().at, deadline);
  static_cast<void>(socket.send(data, size));  // the server may have closed the connection by now
  ::shutdown(socket.descriptor(), SHUT_WR);
  auto outcome = TcpSocket::Outcome::done;
  while (outcome == TcpSocket::Outcome::done) {
    char answer = 0;
    outcome = socket.receive(&answer, 1, deadline);
  }
  fuzz::require(outcome == TcpSocket::Outcome::lost, "the server keeps a connection that its client has closed");
  return 0;
}
