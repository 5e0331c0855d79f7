#include "parallel/comm/tcp/own_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace stagecoach {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text.data(), text.size());
  return text.data();
}

/// Returns the addresses of this machine's network interfaces, in order.
std::vector<std::string> addresses_of_networks() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return found;
  }
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    const bool is_usable = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_usable && one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET) {
      found.push_back(text_of(one->ifa_addr));
    }
  }
  ::freeifaddrs(list);
  return found;
}

/// Returns the addresses that this machine's name resolves to: on Debian often 127.0.1.1, which other machines cannot
/// use.
std::vector<std::string> addresses_of_name() {
  std::vector<std::string> found;
  std::array<char, 256> name{};
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::gethostname(name.data(), name.size() - 1) != 0 || ::getaddrinfo(name.data(), nullptr, &hints, &list) != 0) {
    return found;
  }
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    found.push_back(text_of(one->ai_addr));
  }
  ::freeaddrinfo(list);
  return found;
}

}  // namespace

std::string own_address() {
  const std::vector<std::string> usable = addresses_of_networks();
  for (const std::string& named : addresses_of_name()) {
    if (std::find(usable.begin(), usable.end(), named) != usable.end()) {
      return named;
    }
  }
  return usable.empty() ? "127.0.0.1" : usable.front();
}

}  // namespace stagecoach
