# cmake -DFILES="a.js;b.css" -DDIRECTORY=... -DOUTPUT=page_files.cc -P embed.cmake: writes the files as C++ texts.
# "@PAGE_VERSION@" in index.html becomes the version of all of them.
set(type_of_html "text/html; charset=utf-8")
set(type_of_css "text/css; charset=utf-8")
set(type_of_js "text/javascript; charset=utf-8")
set(type_of_svg "image/svg+xml")

set(digests "")
foreach(name IN LISTS FILES)
  file(SHA256 ${DIRECTORY}/${name} digest)
  string(APPEND digests "${name} ${digest}\n")
endforeach()
string(SHA256 version "${digests}")
string(SUBSTRING ${version} 0 16 version)

set(entries "")
foreach(name IN LISTS FILES)
  file(READ ${DIRECTORY}/${name} content)
  if(content MATCHES "\\)page\"")
    message(FATAL_ERROR "${DIRECTORY}/${name}: holds )page\", which ends a text of ${OUTPUT}")
  endif()
  string(REPLACE "@PAGE_VERSION@" "${version}" content "${content}")
  string(SHA256 digest "${content}")
  string(SUBSTRING ${digest} 0 32 digest)
  string(REGEX MATCH "[a-z]+$" ending ${name})
  if(NOT DEFINED type_of_${ending})
    message(FATAL_ERROR "${DIRECTORY}/${name}: files of the page are .html, .css, .js or .svg")
  endif()
  string(APPEND entries "    {\"${name}\", \"${type_of_${ending}}\", R\"page(${content})page\", \"${digest}\"},\n")
endforeach()

file(WRITE ${OUTPUT} "// Made from the files of src/platform/page.
#include \"platform/page/page.h\"

namespace tesser::platform {
namespace {

constexpr PageFile kFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }
std::string_view page_version() { return \"${version}\"; }

}  // namespace tesser::platform
")
