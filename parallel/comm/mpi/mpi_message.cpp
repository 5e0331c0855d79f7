#include "parallel/comm/mpi/mpi_message.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace stagecoach {
namespace {

constexpr std::size_t kPayload = kFirstMessage - sizeof(MessageHeader);
constexpr std::size_t kLargest = std::size_t{1} << 30;  // MPI counts bytes in an int

/// Returns how many of a tensor's bytes the first message contains. For a long tensor this is 0, because splitting it
/// gains nothing, and for a GPU tensor too, because the first message is in host memory.
std::size_t bytes_in_first(const Tensor& tensor) {
  const bool is_short = tensor.bytes() <= kPayload + kFirstMessage && tensor.device().type == DeviceType::cpu;
  return is_short ? std::min(tensor.bytes(), kPayload) : 0;
}

/// Calls `call(start, bytes)` for each message that the rest of a tensor needs after the first.
template <class Call>
void for_each_rest(const Tensor& tensor, const Call& call) {
  for (std::size_t done = bytes_in_first(tensor); done < tensor.bytes(); done += kLargest) {
    call(done, static_cast<int>(std::min(kLargest, tensor.bytes() - done)));
  }
}

}  // namespace

void MpiOutgoing::start(const MpiAddress& to, const MessageHeader& header, const Tensor& tensor, MpiSend send_rest,
                        MpiRequests& requests, const ErrorContext& context) {
  tensor_ = tensor;
  const auto* bytes = static_cast<const std::byte*>(tensor.raw_data());
  const auto send = [&](MpiSend call, const void* data, int count) {
    MpiWorld::check(call(data, count, MPI_BYTE, to.rank, to.tag, to.comm, &requests.emplace_back(MPI_REQUEST_NULL)),
                    context);
  };
  const std::size_t in_first = bytes_in_first(tensor);
  std::memcpy(first_.data(), &header, sizeof(header));
  if (in_first > 0) {
    std::memcpy(first_.data() + sizeof(header), bytes, in_first);
  }
  send(MPI_Isend, first_.data(), static_cast<int>(sizeof(header) + in_first));
  for_each_rest(tensor, [&](std::size_t done, int count) { send(send_rest, bytes + done, count); });
}

void MpiIncoming::start(const MpiAddress& from, const Tensor& tensor, MpiRequests& requests,
                        const ErrorContext& context) {
  tensor_ = tensor;
  auto* bytes = static_cast<std::byte*>(tensor_.raw_mutable_data());
  const auto receive = [&](void* data, int count) {
    MpiWorld::check(
        MPI_Irecv(data, count, MPI_BYTE, from.rank, from.tag, from.comm, &requests.emplace_back(MPI_REQUEST_NULL)),
        context);
  };
  receive(first_.data(), static_cast<int>(kFirstMessage));
  for_each_rest(tensor, [&](std::size_t done, int count) { receive(bytes + done, count); });
}

MessageHeader MpiIncoming::header() const {
  MessageHeader header;
  std::memcpy(&header, first_.data(), sizeof(header));
  return header;
}

Tensor MpiIncoming::end() {
  if (const std::size_t in_first = bytes_in_first(tensor_); in_first > 0) {
    std::memcpy(tensor_.raw_mutable_data(), first_.data() + sizeof(MessageHeader), in_first);
  }
  return std::exchange(tensor_, {});
}

}  // namespace stagecoach
