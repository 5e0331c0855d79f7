// Messages of remote calls: parallel/rpc/message.h.

#include <vector>

#include "core/base/error.h"
#include "parallel/rpc/message.h"
#include "tests/fuzz/target.h"

using namespace stagecoach;

namespace {

/// A tensor that follows a message comes from a communicator, which checks its length.
Tensor short_tensor(const Shape& shape, DType dtype) {
  STAGECOACH_CHECK(shape.numel() <= 4096, "no such tensor has arrived");
  return Tensor::zeros(shape, dtype);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rpc::Unpacker message{Device{}, std::vector(data, data + size), short_tensor};
  fuzz::accepts<Error>([&] { rpc::unpack_value(message); });
  std::vector<rpc::Command> commands;
  if (fuzz::accepts<Error>([&] { commands = rpc::unpack_commands(message); })) {
    message.bytes = rpc::pack(commands).bytes;
    fuzz::require(rpc::pack(rpc::unpack_commands(message)).bytes == message.bytes,
                  "the message is another one after it was packed and unpacked");
  }
  return 0;
}
