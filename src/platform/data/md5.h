// MD5 (RFC 1321): what S3 gives as the entity tag of an object that was sent in one piece. It finds broken transfers;
// against people who mean harm it is worth nothing.
//
// Values; any thread.
#pragma once

#include <string>
#include <string_view>

namespace tesser::platform {

// 32 hexadecimal digits in lower case.
std::string md5(std::string_view bytes);

}  // namespace tesser::platform
