"""Verbs of the phrasebook with their principal parts and what they demand of their company.

One line a frame (a verb in one use)::

    english | infinitive | er-form | participle | aspect | subject | complements | adverbs

*english* is ``base`` or ``base,past,participle``; ``_`` joins a particle that a pronoun object
may precede (pick_up), ``=`` one that stays put (wait=for).  A dot in the German infinitive marks
a separable prefix; the er-form is given without it.  A participle that starts with ``+`` takes
*sein* in the perfect.  *aspect* is ``d`` for events that last (progressive in English), ``p`` for events of a moment (never
progressive) ``o`` for what happens but
once, or ``s`` for states.
*subject* and the complements list noun classes, ``=`` marking a single noun.  Complements are
``acc:``, ``dat:``, ``prep:auf+acc:`` (a prepositional object), ``bare:`` (no article in German),
``refl`` (a reflexive pronoun) and ``to`` (English puts the dative behind "to").  *adverbs* name a
group of manners (``m=``) and a group of places (``p=``) that suit the frame.
"""

VERB_TABLE = """
sleep,slept,slept|schlafen|schläft|geschlafen|d|person,pet||m=rest p=sleep
work|arbeiten|arbeitet|gearbeitet|d|person||m=work p=work
laugh|lachen|lacht|gelacht|d|person||m=loud p=leisure
cry|weinen|weint|geweint|d|person||m=quiet p=home
dance|tanzen|tanzt|getanzt|d|person||m=joy p=leisure
sing,sang,sung|singen|singt|gesungen|d|person||m=loud p=leisure
swim,swam,swum|schwimmen|schwimmt|+geschwommen|d|person||m=speed p=water
run,ran,run|laufen|läuft|+gelaufen|d|person||m=speed p=walk
hike|wandern|wandert|+gewandert|d|person||m=joy p=nature
jog|joggen|joggt|+gejoggt|d|person||m=slow p=nature
cycle|Rad·fahren|fährt|+Rad gefahren|d|person||m=speed p=nature
wait|warten|wartet|gewartet|d|person||m=patient p=station
smoke|rauchen|raucht|geraucht|d|person|| p=balcony
rest|sich aus·ruhen|ruht|ausgeruht|d|person|refl|p=leisure
get=up,got,got|auf·stehen|steht|+aufgestanden|d|person||m=earlylate
fall=asleep,fell,fallen|ein·schlafen|schläft|+eingeschlafen|p|person||m=sleepy p=couch
wake=up,woke,woken|auf·wachen|wacht|+aufgewacht|p|person,pet||m=earlylate
arrive|an·kommen|kommt|+angekommen|p|person,transport||m=punctual p=arrival
leave,left,left|ab·fahren|fährt|+abgefahren|d|=bus,=train,=ship,=tram||m=punctual
land|landen|landet|+gelandet|p|=plane,=pilot||m=safe p=landing
bark|bellen|bellt|gebellt|d|=dog||m=loud p=outside
fly,flew,flown|fliegen|fliegt|+geflogen|d|=bird,=duck,=goose,=parrot,=plane||m=speed p=
bloom|blühen|blüht|geblüht|d|blossom|| p=outside
grow,grew,grown|wachsen|wächst|+gewachsen|d|plant||m=slowfast p=outside
burn|brennen|brennt|gebrannt|o|=house,=factory,=forest,=truck,=hotel||
start|an·fangen|fängt|angefangen|p|event||m=punctual
end|enden|endet|geendet|p|event||m=punctual
take=place,took,taken|statt·finden|findet|stattgefunden|p|event|| p=venue
stop|an·halten|hält|angehalten|d|=car,=bus,=train,=taxi,=tram,=truck||m=sudden p=street
disappear|verschwinden|verschwindet|+verschwunden|o|person,pet||m=sudden
die|sterben|stirbt|+gestorben|o|family,pet,farm||m=sudden
smile|lächeln|lächelt|gelächelt|d|person||m=friendly
shout|schreien|schreit|geschrien|d|=child,=boy,=girl,=man,=pupil,=neighbour,=guest||m=loud p=outside
whisper|flüstern|flüstert|geflüstert|d|=child,=boy,=girl,=pupil,=student,=guest||m=quiet p=hush
sneeze|niesen|niest|geniest|d|person||m=loud
study|lernen|lernt|gelernt|d|=student,=pupil,=boy,=girl,=daughter,=son||m=work p=study
ride|reiten|reitet|+geritten|d|=farmer,=girl,=boy,=daughter,=aunt,=niece||m=speed p=nature
read,read,read|lesen|liest|gelesen|d|person|acc:=book,=newspaper,=letter,=novel,=magazine,=poem,=report,=article,=email,=message,=postcard,=contract,=fairy tale,=story|m=attentive p=readroom
write,wrote,written|schreiben|schreibt|geschrieben|d|person|acc:writable|m=careful p=study
eat,ate,eaten|essen|isst|gegessen|d|person|acc:fruit_sweet,=cucumber,=tomato,=carrot,dish,massfood|p=mealroom
drink,drank,drunk|trinken|trinkt|getrunken|d|person|acc:drink|p=mealroom
cook|kochen|kocht|gekocht|d|person|acc:cookable|p=kitchen
bake|backen|backt|gebacken|d|person|acc:bakeable|p=kitchen
peel|schälen|schält|geschält|d|person|acc:=apple,=potato,=orange,=carrot,=onion,=pear,=egg,=cucumber|p=kitchen
cut,cut,cut|schneiden|schneidet|geschnitten|d|person|acc:=apple,=tomato,=onion,=cucumber,=lemon,=cake,=bread,=cheese,=meat,=pizza|p=kitchen
fry|braten|brät|gebraten|d|person|acc:=egg,=meat,=sausage,=mushroom,=onion,=potato|p=kitchen
buy,bought,bought|kaufen|kauft|gekauft|d|person|acc:fruit,dish,massfood,drink,clothing,footwear,portable,container,device,furniture,reading_buy,instrument,toy,vehicle_own|
sell,sold,sold|verkaufen|verkauft|verkauft|d|person|acc:vehicle_own,furniture,instrument,device,farm,art,house|
order|bestellen|bestellt|bestellt|d|person|acc:dish,drink,clothing,device,=book,=taxi|
need|brauchen|braucht|gebraucht|s|person|acc:device,=key,=umbrella,=ticket,=map,=stamp,=hammer,=pencil,=notebook,=passport,=towel,=blanket,=pillow,container,clothing,vehicle_own,furniture,=flat,=doctor,=lawyer|
wear,wore,worn|tragen|trägt|getragen|d|person|acc:clothing,=shoe,=glove,=ring,=boot,=sock|
put_on,put,put|an·ziehen|zieht|angezogen|d|person|acc:clothing_body,footwear|m=speed
take_off,took,taken|aus·ziehen|zieht|ausgezogen|d|person|acc:clothing_body,footwear|m=speed
try_on|an·probieren|probiert|anprobiert|d|person|acc:clothing,footwear|
iron|bügeln|bügelt|gebügelt|d|person|acc:=shirt,=blouse,=skirt,=dress,=suit,=towel|m=careful p=home
sew,sewed,sewn|nähen|näht|genäht|d|person|acc:=shirt,=blouse,=skirt,=dress,=suit,=coat,=doll,=bag|m=careful p=sewing
knit|stricken|strickt|gestrickt|d|=grandmother,=aunt,=mother,=niece,=nurse,=neighbour,=woman|acc:=sweater,=scarf,=cap,=sock,=glove|p=home
wash|waschen|wäscht|gewaschen|d|person|acc:clothing_soft,=car,=sock,=towel,=blanket,=dog,=apple,=pear,=tomato|m=careful
wash_up|ab·waschen|wäscht|abgewaschen|d|person|acc:=plate,=cup,=glass,=pot,=pan,=fork,=spoon,=knife,=bowl|p=kitchen
dry|ab·trocknen|trocknet|abgetrocknet|d|person|acc:=plate,=cup,=glass,=pot,=pan,=fork,=spoon,=knife,=bowl|p=kitchen
clean|putzen|putzt|geputzt|d|person|acc:room,=window,=shoe,=boot,=oven|m=careful
tidy_up|auf·räumen|räumt|aufgeräumt|d|person|acc:room,=desk,=drawer,=cupboard|
repair|reparieren|repariert|repariert|d|person|acc:vehicle_own,device,=chair,=door,=gate,=umbrella|m=skill p=workshop
build,built,built|bauen|baut|gebaut|d|person|acc:=boat,=table,=cupboard,=bench,=shelf,=kite|
paint|streichen|streicht|gestrichen|d|person|acc:=door,=gate,=house,=kitchen,=bench,=room,=garage,=living room|m=careful
draw,drew,drawn|zeichnen|zeichnet|gezeichnet|d|person|acc:=tree,=house,=picture,=map,=plan,=horse,=bird,=castle,=flower|m=careful
plant|pflanzen|pflanzt|gepflanzt|d|person|acc:plant,=strawberry|p=garden
water|gießen|gießt|gegossen|d|person|acc:=rose,=flower,=tulip,=tree,=sunflower,=bush|p=garden
pick|pflücken|pflückt|gepflückt|d|person|acc:=apple,=pear,=cherry,=strawberry,=flower,=rose,=tulip,=peach,=lemon|p=garden
feed,fed,fed|füttern|füttert|gefüttert|d|person|acc:pet,farm,=bird,=hedgehog,=squirrel,=elephant,=monkey|
stroke|streicheln|streichelt|gestreichelt|d|person|acc:pet,=horse,=goat,=donkey,=cow|m=gentle
catch,caught,caught|fangen|fängt|gefangen|p|person|acc:=mouse,=bird,=ball,=rabbit,=snake,=frog,=thief,=chicken|
chase|jagen|jagt|gejagt|d|=dog,=cat,=fox,=wolf,=lion,=tiger|acc:=mouse,=rabbit,=bird,=duck,=chicken,=cat,=squirrel,=goose|
bite,bit,bitten|beißen|beißt|gebissen|p|=dog,=snake,=hamster,=rabbit,=parrot,=wolf|acc:=man,=boy,=girl,=child,=cat,=guest,=thief,=neighbour,=gardener|
open|öffnen|öffnet|geöffnet|d|person|acc:openable|m=careful
close|schließen|schließt|geschlossen|d|person|acc:=door,=gate,=window,=drawer,=suitcase,=bag|m=careful
lock|ab·schließen|schließt|abgeschlossen|d|person|acc:=door,=gate,=car,=bicycle,=suitcase,=flat,=house,=cupboard,=drawer,=garage,=office|
turn_on|ein·schalten|schaltet|eingeschaltet|d|person|acc:switch|
turn_off|aus·schalten|schaltet|ausgeschaltet|d|person|acc:switch|
break,broke,broken|zerbrechen|zerbricht|zerbrochen|p|person|acc:=glass,=cup,=plate,=bottle,=vase,=bowl,=lamp|
look=for|suchen|sucht|gesucht|d|person|acc:portable,clothing,footwear,pet,container,toy|
find,found,found|finden|findet|gefunden|p|person|acc:portable,clothing,footwear,pet,container,toy,=mistake|m=chance
lose,lost,lost|verlieren|verliert|verloren|p|person|acc:=key,=wallet,=umbrella,=ticket,=passport,=ring,=glove,=watch,=scarf,=cap,=bag,=photo,=ball,=camera|
forget,forgot,forgotten|vergessen|vergisst|vergessen|p|person|acc:portable,=word,=rule,=question,=answer,=umbrella,=bag,=camera|
bring=along,brought,brought|mit·bringen|bringt|mitgebracht|d|person|acc:=cake,=salad,=camera,=umbrella,=guitar,=ball,=photo,=map,=bottle,=friend,=dog,=book,=chair,=present|
pick_up|ab·holen|holt|abgeholt|d|person|acc:=parcel,=car,person_some,=suitcase,=ticket,=suit|
carry|tragen|trägt|getragen|d|person|acc:=suitcase,=box,=parcel,=bag,=basket,=bucket,=backpack,=table,=chair,=armchair,=television|p=
pack|packen|packt|gepackt|d|person|acc:=suitcase,=bag,=backpack,=box,=parcel|m=speed
unpack|aus·packen|packt|ausgepackt|d|person|acc:=suitcase,=bag,=backpack,=box,=parcel,=present,=basket|m=speed
steal,stole,stolen|stehlen|stiehlt|gestohlen|p|=thief,=man,=woman,=boy,=guest|acc:=car,=bicycle,=wallet,=watch,=ring,=painting,=camera,=motorbike,=bag,=computer,=statue|m=secret
borrow|aus·leihen|leiht|ausgeliehen|p|person|acc:=book,=novel,=bicycle,=hammer,=umbrella,=car,=camera,=guitar,=magazine,=suitcase|
sign,signed,signed|unterschreiben|unterschreibt|unterschrieben|d|person|acc:=contract,=letter,=report,=postcard|m=careful
translate|übersetzen|übersetzt|übersetzt|d|person|acc:=letter,=book,=novel,=poem,=article,=contract,=report,=story,=email,=recipe|m=careful p=study
understand,understood,understood|verstehen|versteht|verstanden|s|person|acc:=question,=answer,=problem,=rule,=joke,=word,=poem,=task,=article,=plan,=idea,=contract,=film,=lecture,=decision,=advantage|
know,knew,known|kennen|kennt|gekannt|s|person|acc:job,human,=song,=city,=book,=film,=story,=answer,=secret,=rule,=island,=village,=restaurant,=poem,=reason,=melody|
love|lieben|liebt|geliebt|s|person|acc:family,=song,=melody,=horse,=city,=garden,=chocolate,=island,=forest|
like|mögen|mag|gemocht|s|person|acc:person_some,pet,fruit,massfood,drink,music,=cake,=soup,=picture,=film,=idea,=dress,=horse,=elephant|
hate|hassen|hasst|gehasst|s|person|acc:=mouse,=snake,=rule,=onion,=mushroom,=tie,=suit|
see,saw,seen|sehen|sieht|gesehen|p|person|acc:person,pet,farm,wild,vehicle,building_big,show|p=seen
hear,heard,heard|hören|hört|gehört|p|person|acc:=bird,=dog,=song,=melody,=car,=train,=singer,=baby,=frog,=plane,=wolf|
watch|an·sehen|sieht|angesehen|d|person|acc:show refl_dat|p=watchroom
visit|besuchen|besucht|besucht|d|person|acc:person,=museum,=castle,=zoo,=island,=city,=village,=church|p=
meet,met,met|treffen|trifft|getroffen|p|person|acc:person|m=chance p=meet
invite|ein·laden|lädt|eingeladen|d|person|acc:person|
call|an·rufen|ruft|angerufen|d|person|acc:person|
greet|begrüßen|begrüßt|begrüßt|d|person|acc:person|m=friendly
photograph|fotografieren|fotografiert|fotografiert|d|person|acc:=castle,=bridge,=bird,=elephant,=lion,=squirrel,=hedgehog,=tower,=flower,=child,=guest,=singer,=statue,=church,=ship|
accompany|begleiten|begleitet|begleitet|d|person|acc:person|
disturb|stören|stört|gestört|d|person|acc:person|
comfort|trösten|tröstet|getröstet|d|person|acc:=child,=girl,=boy,=friend,=daughter,=son,=patient,=pupil,=mother,=niece,=nephew|m=gentle
examine|untersuchen|untersucht|untersucht|d|=doctor,=dentist,=nurse|acc:=patient,=child,=girl,=boy,=customer,=pilot,=knee,=tooth,=foot,=hand|m=careful p=clinic
kiss|küssen|küsst|geküsst|d|person|acc:=baby,=mother,=grandmother,=daughter,=son,=niece|m=gentle
hug|umarmen|umarmt|umarmt|d|person|acc:family,=friend,=child,=guest,=teddy bear|m=gentle
search|durchsuchen|durchsucht|durchsucht|d|=policeman,=policewoman,=thief,=boy,=journalist|acc:=bag,=suitcase,=flat,=room,=car,=cellar,=house,=backpack,=drawer,=office,=garage|m=careful
arrest|verhaften|verhaftet|verhaftet|p|=policeman,=policewoman|acc:=thief,=man,=woman|p=arrest
play|spielen|spielt|gespielt|d|person|bare:activity|m=joy p=sport
play,played,played|spielen|spielt|gespielt|d|person|bare:instrument|m=play p=home
learn|lernen|lernt|gelernt|d|person|bare:language|m=work p=study
speak,spoke,spoken|sprechen|spricht|gesprochen|s|person|bare:language|m=speak p=
sing,sang,sung|singen|singt|gesungen|d|person|acc:=song|m=loud p=leisure
discuss|besprechen|bespricht|besprochen|d|person|acc:=problem,=plan,=question,=idea,=mistake,=task,=report,=contract,=rule,=decision,=advantage|p=study
solve|lösen|löst|gelöst|d|person|acc:=problem,=task,=puzzle|m=skill
prepare|vor·bereiten|bereitet|vorbereitet|d|person|acc:=meeting,=exam,=party,=lecture,=trip,=wedding,=salad,=lesson,=concert|m=careful
win,won,won|gewinnen|gewinnt|gewonnen|p|person|acc:=match,=competition|p=
miss|verpassen|verpasst|verpasst|p|person|acc:transport,=lesson,=meeting,=film,=concert,=exam,=lecture|
organise|organisieren|organisiert|organisiert|d|person|acc:=party,=wedding,=trip,=concert,=competition,=meeting|
cancel|ab·sagen|sagt|abgesagt|d|=teacher,=boss,=singer,=engineer,=lawyer,=friend,=colleague,=musician,=aunt|acc:=concert,=meeting,=party,=trip,=exam,=wedding,=lecture|
rent|mieten|mietet|gemietet|d|person|acc:=flat,=car,=house,=boat,=room,=garage,=bicycle,=office|
push|schieben|schiebt|geschoben|d|person|acc:=bicycle,=car,=motorbike|p=
throw_away,threw,thrown|weg·werfen|wirft|weggeworfen|d|person|acc:=bottle,=newspaper,=shoe,=box,=letter,=magazine,=chair,=sock,=carpet,=pan|
help|helfen|hilft|geholfen|d|person|dat:person|p=helproom
thank|danken|dankt|gedankt|d|person|dat:person|
congratulate|gratulieren|gratuliert|gratuliert|d|person|dat:person|
answer|antworten|antwortet|geantwortet|d|person|dat:person|m=polite
believe|glauben|glaubt|geglaubt|s|person|dat:person|
trust|vertrauen|vertraut|vertraut|s|person|dat:person|
follow|folgen|folgt|+gefolgt|d|=dog,=policeman,=thief,=child,=boy,=cat,=journalist,=tourist,=man,=girl|dat:=car,=man,=woman,=boy,=thief,=girl,=bus,=taxi,=teacher,=waiter,=singer|m=quiet
listen=to|zu·hören|hört|zugehört|d|person|dat:person|m=attentive
belong=to|gehören|gehört|gehört|s|clothing,portable,vehicle_own,furniture,toy,container,instrument,pet,=house,=flat,=garden|dat:person
contradict|widersprechen|widerspricht|widersprochen|d|person|dat:=teacher,=boss,=judge,=father,=mother,=doctor,=lawyer,=engineer,=colleague|m=polite
forgive,forgave,forgiven|verzeihen|verzeiht|verziehen|p|person|dat:person|
resemble|ähneln|ähnelt|geähnelt|s|family|dat:family,=actress,=singer|
give,gave,given|geben|gibt|gegeben|d|person|dat:person acc:portable,fruit,reading_buy,clothing,toy,=glass,=cup,=bottle|
show,showed,shown|zeigen|zeigt|gezeigt|d|person|dat:person acc:art,=photo,=map,=passport,=flat,=garden,=house,=letter,=ring,=watch,=dress,=castle,=city|
send,sent,sent|schicken|schickt|geschickt|d|person|dat:person acc:sendable|
lend,lent,lent|leihen|leiht|geliehen|d|person|dat:person acc:=car,=bicycle,=book,=umbrella,=hammer,=suitcase,=camera,=coat,=pencil,=novel,=boat,=ball|
bring,brought,brought|bringen|bringt|gebracht|d|person|dat:person acc:drink,=blanket,=pillow,=newspaper,=letter,=flower,=soup,=parcel,=chair,=key,=towel,=cake,=glass|
explain|erklären|erklärt|erklärt|d|person|dat:person acc:explainable to|m=patient
tell,told,told|erzählen|erzählt|erzählt|d|person|dat:person acc:tellable|
recommend|empfehlen|empfiehlt|empfohlen|d|person|dat:person acc:=film,=book,=restaurant,=hotel,=doctor,=novel,=museum,=wine,=lawyer,=recipe,=dentist to|
describe|beschreiben|beschreibt|beschrieben|d|person|dat:person acc:=thief,=picture,=house,=plan,=problem,=man,=statue,=dream,=city,=flat to|m=careful
return|zurück·geben|gibt|zurückgegeben|p|person|dat:person acc:=key,=book,=umbrella,=car,=camera,=hammer,=ring,=bicycle,=suitcase,=ball,=dress to|
promise|versprechen|verspricht|versprochen|p|person|dat:family,=child,=friend,=girl,=boy acc:=dog,=bicycle,=present,=answer,=trip,=horse,=ring,=rabbit,=doll|
offer|an·bieten|bietet|angeboten|d|person|dat:person acc:drink,dish,=chair,=chocolate,=apple,=bread,=room|
read=out,read,read|vor·lesen|liest|vorgelesen|d|person|dat:family,=child,=pupil,=patient,=girl,=boy acc:=letter,=story,=fairy tale,=poem,=article,=book,=recipe,=postcard to|
wait=for|warten|wartet|gewartet|d|person|prep:auf+acc:person,transport,=taxi,=letter,=answer,=parcel,=decision|m=patient p=station
think=of,thought,thought|denken|denkt|gedacht|d|person|prep:an+acc:family,=friend,=exam,=wedding,=trip,=problem,=plan,=colleague|
talk=about|sprechen|spricht|gesprochen|d|person|prep:über+acc:=film,=book,=problem,=exam,=plan,=wedding,=boss,=teacher,=trip,=match,=neighbour,=decision,=idea,=novel|
laugh=about|lachen|lacht|gelacht|d|person|prep:über+acc:=joke,=story,=mistake,=film,=picture,=answer,=photo|m=loud
dream=of,dreamt,dreamt|träumen|träumt|geträumt|d|person|prep:von+dat:=horse,=island,=house,=wedding,=trip,=car,=boat,=garden,=castle,=dog|
look=forward=to|sich freuen|freut|gefreut|d|person|refl prep:auf+acc:=party,=wedding,=trip,=concert,=match,=film,=letter,=guest,=competition|
remember|sich erinnern|erinnert|erinnert|s|person|refl prep:an+acc:job,human,=dog,=trip,=wedding,=dream,=story,=film,=house,=song,=question,=concert|
complain=about|sich beschweren|beschwert|beschwert|d|person|refl prep:über+acc:=soup,=neighbour,=waiter,=hotel,=room,=rule,=task,=boss,=heater,=programme,=decision|m=loud
take=care=of,took,taken|sich kümmern|kümmert|gekümmert|d|person|refl prep:um+acc:family,pet,=garden,=patient,=guest,=problem,=child,=horse|
fall=in=love=with,fell,fallen|sich verlieben|verliebt|verliebt|o|person|refl prep:in+acc:=actress,=singer,=doctor,=teacher,=painter,=nurse,=neighbour,=musician,=colleague,=waitress,=pilot|
take=part=in,took,taken|teil·nehmen|nimmt|teilgenommen|d|person|prep:an+dat:=competition,=meeting,=lesson,=trip,=lecture,=exam,=match|
apologise=to|sich entschuldigen|entschuldigt|entschuldigt|d|person|refl prep:bei+dat:person|m=polite
argue=with|streiten|streitet|gestritten|d|person|prep:mit+dat:person|m=loud
talk=to|reden|redet|geredet|d|person|prep:mit+dat:person|m=quiet p=meet
play=with|spielen|spielt|gespielt|d|=child,=boy,=girl,=son,=daughter,=nephew,=niece,pet,=grandson|prep:mit+dat:toy,pet|p=home
smell=of|riechen|riecht|gerochen|s|=kitchen,=room,=cellar,=blanket,=car,=coat,=flat,=bathroom|prep:nach+dat:=coffee,=meat,=cheese,=onion,=chocolate,=rose,=lemon,=beer,=wine,=honey|
rely=on|sich verlassen|verlässt|verlassen|s|person|refl prep:auf+acc:person|
get=used=to,got,got|sich gewöhnen|gewöhnt|gewöhnt|d|person|refl prep:an+acc:=flat,=rule,=boss,=teacher,=city,=bed,=computer,=colleague,=room|
taste=of|schmecken|schmeckt|geschmeckt|s|=soup,=salad,=meat,=rice,=jam,=tea,=water,=lemonade,=cake|prep:nach+dat:=honey,=lemon,=onion,=orange,=chocolate,=cheese,=apple,=cherry,=mushroom|
ask=for|bitten|bittet|gebeten|d|person|prep:um+acc:=answer,=pencil,=towel,=blanket,=key,=pillow,=glass,=report|m=polite
collect|sammeln|sammelt|gesammelt|s|person|acc:=stamp,=coin,=postcard,=mushroom,=doll,=watch,=painting,=poster|
celebrate|feiern|feiert|gefeiert|d|person|acc:=wedding|p=venue
check|prüfen|prüft|geprüft|d|person|acc:=ticket,=passport,=contract,=answer,=report,=email,=plan,=computer,=heater|m=careful
correct|korrigieren|korrigiert|korrigiert|d|=teacher,=boss,=engineer,=secretary,=journalist,=student|acc:=mistake,=exam,=report,=article,=answer,=word,=letter|m=careful p=study
cover|zu·decken|deckt|zugedeckt|d|person|acc:=pot,=car,=pan|m=careful
hide,hid,hidden|verstecken|versteckt|versteckt|d|person|acc:=present,=key,=letter,=diary,=ring,=chocolate,=biscuit,=ball,=wallet|
use|benutzen|benutzt|benutzt|d|person|acc:device_use,=map,=knife,=fork,=spoon,=hairbrush,=towel,=bicycle,=car,=pan|
"""

# Verbs with a place of their own: subjects, and the places (by group) they go to or are at.
# english | infinitive | er-form | participle | aspect | subject | kind of place
MOTION_TABLE = """
go,went,gone|gehen|geht|+gegangen|d|person|dir:walkable
run,ran,run|rennen|rennt|+gerannt|d|person|dir:reachable
drive,drove,driven|fahren|fährt|+gefahren|d|person|dir:near
fly,flew,flown|fliegen|fliegt|+geflogen|d|person|dir:far
travel|reisen|reist|+gereist|d|person|dir:far
move|ziehen|zieht|+gezogen|d|person|dir:settle
come,came,come|kommen|kommt|+gekommen|s|person|origin:far
live|wohnen|wohnt|gewohnt|s|person|loc:city
stay|bleiben|bleibt|+geblieben|d|person|loc:stay
sit,sat,sat|sitzen|sitzt|gesessen|d|person|loc:sit
stand,stood,stood|stehen|steht|gestanden|d|person|loc:stand
"""
