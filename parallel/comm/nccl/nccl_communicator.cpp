#include "parallel/comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "core/stream.h"
#include "core/trace.h"

namespace stagecoach {

NcclCommunicator::NcclCommunicator(Mail& mail, std::unique_ptr<Wire> wire, Group group)
    : ExchangeCommunicator(std::move(group)),
      mail_(mail),
      wire_(std::move(wire)),
      exceptions_before_(std::uncaught_exceptions()) {
  STAGECOACH_CHECK(clock().kind() == ClockKind::wall, "transport nccl: a virtual clock");
  wire_->introduce_by(
      {.tell = [this](int to,
                      const std::string& text) { mail_.post(member(to), key(fmt::format("wire/{}", rank())), text); },
       .heard = [this](int from) { return mail_.take(key(fmt::format("wire/{}", from))); }});
}

NcclCommunicator::~NcclCommunicator() {
  const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
  if (broken_ || unwinding || mail_.has_failed()) {
    wire_->abort();
    return;
  }
  try {
    wait([this] { return outbox_.empty(); }, [this] { return doing("end of the group"); });
    unwanted_.empty() ? wire_->close() : wire_->abort();
  } catch (const Error&) {  // what was sent is not wanted; wait() has ended it
  }
}

template <class Done>
void NcclCommunicator::wait(const Done& done, const Words& words) {
  MailWait patience(mail_, abandoned_.get_token(), words);
  try {
    for (serve(); !done(); serve()) {
      patience.look();
    }
  } catch (const WireError& error) {
    broken_ = true;
    wire_->abort();
    throw CommError(fmt::format("{}: {}", words(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    wire_->abort();
    throw;
  }
}

void NcclCommunicator::serve() {
  wire_->advance();
  std::erase_if(outbox_, [](const std::shared_ptr<Message>& sent) {
    const bool is_done = sent->is_done();
    if (is_done) {
      *sent = {};
    }
    return is_done;
  });
}

NcclCommunicator::Message NcclCommunicator::start(Wire::Move::Way way, const Tensor& tensor, int peer, int tag) {
  try {
    return {tensor, tensor.bytes() > 0 ? wire_->start({way, tensor, peer, tag}) : nullptr};
  } catch (const WireError& error) {
    broken_ = true;
    wire_->abort();
    const bool comes_in = way == Wire::Move::Way::in;
    throw CommError(
        fmt::format("{}: {}", doing(comes_in ? "receive" : "send", comes_in ? "from" : "to", peer, tag), error.what()));
  }
}

PendingSend NcclCommunicator::send_async(const Tensor& tensor, int to, int tag) {
  require_peer("send", to, tag);
  require_here("send", tensor);
  const auto event = group().recorder->begin(message_event("send", to, tag, tensor.dtype(), tensor.shape()));
  const auto sent = std::make_shared<Message>(start(Wire::Move::Way::out, tensor.detach(), to, tag));
  outbox_.push_back(sent);
  const auto wait_taken = [this, sent, event, to, tag, work = current_work()] {
    const Waiting waiting(clock());
    wait([&] { return sent->is_done(); },
         [&] {
           const Activity then(work.operation, work.stage, work.microbatch);
           return doing("send", "to", to, tag);
         });
    group().recorder->end(event);
  };
  return {wait_taken, [this, sent, event] {
            const bool taken = sent->is_done();
            if (taken) {
              group().recorder->end(event);
            }
            return taken;
          }};
}

/// A receive that was posted; left to the next one at the end, in case that nobody has waited for it.
class NcclCommunicator::Receive {
 public:
  Receive(NcclCommunicator& comm, const Shape& shape, DType dtype, int from, int tag)
      : comm_(comm), from_(from), message_(comm.post(shape, dtype, from, tag)) {}
  ~Receive() {
    if (message_.tensor.defined()) {
      comm_.unwanted_[from_].push_back(std::move(message_));
    }
  }
  Receive(const Receive&) = delete;
  Receive& operator=(const Receive&) = delete;
  Message& message() { return message_; }

 private:
  NcclCommunicator& comm_;
  int from_;
  Message message_;
};

NcclCommunicator::Message NcclCommunicator::post(const Shape& shape, DType dtype, int from, int tag) {
  const auto found = unwanted_.find(from);
  if (found == unwanted_.end()) {
    return start(Wire::Move::Way::in, Tensor::empty(shape, dtype, device()), from, tag);
  }
  Message message = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    unwanted_.erase(found);
  }
  if (message.tensor.shape() != shape || message.tensor.dtype() != dtype) {
    throw CommError(
        fmt::format("{}: a receive of {} was posted before and nobody has waited for it, so it gets the "
                    "next message: expected one of the same type, got {}; NCCL withdraws no receive",
                    doing("receive", "from", from, tag), type_of(message.tensor), type_of(shape, dtype)));
  }
  return message;
}

PendingReceive NcclCommunicator::receive_async(const Shape& shape, DType dtype, int from, int tag) {
  require_peer("receive", from, tag);
  const auto receive = std::make_shared<Receive>(*this, shape, dtype, from, tag);
  return PendingReceive([this, receive, shape, dtype, from, tag, work = current_work()] {
    const Recorded recorded(*group().recorder, message_event("receive", from, tag, dtype, shape));
    const Tensor tensor = wait_for(receive->message(), [&] { return doing_receive(from, tag, work); });
    return PendingReceive::Arrived{tensor, clock().now()};
  });
}

Tensor NcclCommunicator::wait_for(Message& message, const Words& words) {
  const Span span("receive", "wait");
  const Waiting waiting(clock());
  wait([&] { return message.is_done(); }, words);
  return std::exchange(message, {}).tensor;
}

void NcclCommunicator::send_number(double number, int to, int tag) {
  require_peer("send_number", to, tag);
  const Recorded recorded(*group().recorder, message_event("send_number", to, tag, DType::float64, {1}));
  mail_.post(member(to), key(fmt::format("number/{}/{}", rank(), tag)), fmt::format("{:.17g}", number));
}

double NcclCommunicator::receive_number(int from, int tag) {
  require_peer("receive_number", from, tag);
  const Recorded recorded(*group().recorder, message_event("receive_number", from, tag, DType::float64, {1}));
  const Waiting waiting(clock());
  const std::string wanted = key(fmt::format("number/{}/{}", from, tag));
  std::optional<std::string> text;
  wait([&] { return (text = mail_.take(wanted)).has_value(); },
       [&] { return doing("receive_number", "from", from, tag); });
  return std::strtod(text->c_str(), nullptr);
}

void NcclCommunicator::exchange(const char* operation, const Tensor& /*like*/, Parcels& parcels) {
  std::vector<Wire::Move> moves;
  for (int r = 0; r < size(); ++r) {
    const Parcel& parcel = parcels[static_cast<std::size_t>(r)];
    if (r != rank() && parcel.in.defined() && parcel.in.bytes() > 0) {
      moves.push_back({Wire::Move::Way::in, parcel.in, r});
    }
    if (r != rank() && parcel.out.defined() && parcel.out.bytes() > 0) {
      moves.push_back({Wire::Move::Way::out, parcel.out, r});
    }
  }
  if (moves.empty()) {
    return synchronize({device(), Stream::kCompute});
  }
  const auto transfer = wire_->exchange(std::move(moves));
  wait([&] { return transfer->is_done(); }, [&] { return doing(operation); });
}

bool NcclCommunicator::sum_natively(Tensor& tensor) {
  const auto transfer = wire_->all_reduce(tensor);
  wait([&] { return transfer->is_done(); }, [&] { return doing("all_reduce"); });
  return true;
}

std::unique_ptr<Wire> NcclCommunicator::split_wire(int colour, int key, const char* operation) {
  const auto words = [&] { return doing(operation); };
  MailWait patience(mail_, abandoned_.get_token(), words);
  try {
    return wire_->split(colour, key, [&] {
      serve();  // a rank that comes later may still need a message before it does
      patience.look();
    });
  } catch (const WireError& error) {
    broken_ = true;
    throw CommError(fmt::format("{}: {}", words(), error.what()));
  } catch (const Error&) {
    broken_ = true;
    throw;
  }
}

std::unique_ptr<Communicator> NcclCommunicator::split(int colour, int key) {
  Group part = chosen_from(gather_choices(colour, key));
  // NCCL takes colours from 0, so the first member stands for its group.
  auto wire = split_wire(part.members[0], part.rank, "split");
  return std::make_unique<NcclCommunicator>(mail_, std::move(wire), std::move(part));
}

std::unique_ptr<Communicator> NcclCommunicator::duplicate() {
  auto wire = split_wire(0, rank(), "duplicate");
  return std::make_unique<NcclCommunicator>(mail_, std::move(wire), duplicated());
}

}  // namespace stagecoach
