// What clients, or strangers, send to rank 0's bootstrap: parallel/comm/tcp/bootstrap.h. The token is the one of
// make_seeds.cpp.

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "parallel/comm/tcp/bootstrap.h"
#include "parallel/comm/tcp/tcp_socket.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const BootstrapServer server({{"127.0.0.1", 0}, "token"}, 2, {}, [](const std::string&) {});
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
