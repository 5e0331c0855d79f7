#include "parallel/comm/message_header.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/group_communicator.h"

namespace stagecoach {

MessageHeader::MessageHeader(const char* name, const Tensor& about, const LinkDirection::Send& when)
    : dtype(static_cast<std::int32_t>(about.dtype())), dims(about.dims()), send(when) {
  std::strncpy(operation.data(), name, operation.size() - 1);
  std::copy(about.shape().begin(), about.shape().end(), extents.begin());
}

std::string MessageHeader::type() const { return type_of(Shape(extents.data(), dims), static_cast<DType>(dtype)); }

}  // namespace stagecoach
