// Whether this Gloo is one whose connections can be taken over (parallel/comm/gloo/gloo_mesh.cpp).

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

namespace tcp = gloo::transport::tcp;

namespace {

class Pair : public tcp::Pair {
 public:
  Pair(tcp::Context* context, tcp::Device* device) : tcp::Pair(context, device, 0, std::chrono::milliseconds(1)) {}
  void use(int descriptor) {
    device_->unregisterDescriptor(fd_, this);
    fd_ = descriptor;
    handleConnected();
  }
};

class Buffer : public tcp::UnboundBuffer {
 public:
  using tcp::UnboundBuffer::UnboundBuffer;
  bool is_done() const { return recvCompletions_ + sendCompletions_ > 0; }
};

}  // namespace

int main() { Pair(nullptr, nullptr).use(0); }
